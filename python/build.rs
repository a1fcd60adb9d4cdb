//! Builds the C++ half of the hooks: what only C++ can say.

fn main() {
    println!("cargo::rerun-if-changed=src/shim.cpp");
    cc::Build::new().cpp(true).std("c++17").warnings(true).file("src/shim.cpp").compile("shim");
}
