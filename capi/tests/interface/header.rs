//! `include/regraph.h` is what the sources generate, and C and C++ compilers accept it.
//!
//! `REGRAPH_WRITE_HEADER=1 cargo test -p regraph-capi header` writes it.

use std::path::Path;

use crate::support::{compile, Language};

/// The sources, in the header's order.
const SOURCES: &[&str] = &[
    "version",
    "error",
    "handles",
    "config",
    "devices",
    "log",
    "engine",
    "pools",
    "blocks",
    "captures",
    "learning",
    "estimates",
    "graphs",
    "loans",
    "regions",
    "explain",
    "statistics",
    "memory",
    "leaks",
    "observe",
    "snapshot",
    "sim",
];

fn made() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let source = |name| folder.join("src").join(name).with_extension("rs");
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = SOURCES.iter().fold(builder, |builder, name| builder.with_src(source(name)));
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_header_is_what_the_sources_say() {
    let (made, path) = (made(), crate::support::include().join("regraph.h"));
    if std::env::var_os("REGRAPH_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let line = made.lines().zip(there.lines()).position(|(made, there)| made != there);
    assert!(
        made == there,
        "{} is not what the sources say, from line {} on; write it anew with \
         REGRAPH_WRITE_HEADER=1 cargo test -p regraph-capi header",
        path.display(),
        line.unwrap_or(made.lines().count().min(there.lines().count())) + 1
    );
}

#[test]
fn no_source_is_left_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (made, mut calls) = (made(), 0);
    for file in folder.read_dir().unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for call in text.split("extern \"C\" fn ").skip(1) {
            let name = call.split('(').next().unwrap();
            if name.starts_with("regraph_") {
                assert!(made.contains(&format!("{name}(")), "{name} is not in the header");
                calls += 1;
            }
        }
    }
    assert!(calls > 50, "{calls} calls found");
}

#[test]
fn c_and_cpp_compilers_take_it() {
    let text = "#include <regraph.h>\n#include <regraph.h>\nint main(void) { return 0; }\n";
    let folder = tempfile::tempdir().unwrap();
    for (language, name) in [(Language::C99, "header.c"), (Language::Cpp17, "header.cpp")] {
        let source = folder.path().join(name);
        std::fs::write(&source, text).unwrap();
        compile(language, &source, &folder.path().join("header.o"), &["-c"]);
    }
}

/// CUDA's own declarations may come before or after, and its handles need no cast.
#[test]
fn cudas_types_go_in_without_a_cast() {
    let cuda = "typedef struct CUstream_st *CUstream;\ntypedef struct CUgraph_st *CUgraph;\n";
    let header = "#include <regraph.h>\n";
    let body =
        "regraph_error f(const regraph_engine *e, regraph_pool p, CUstream s, regraph_block *b)\n\
                { return regraph_allocate(e, p, 1, s, b); }\n\
                regraph_error g(const regraph_engine *e, regraph_capture_id c, CUgraph g)\n\
                { return regraph_end_capture(e, c, g, NULL); }\n";
    let folder = tempfile::tempdir().unwrap();
    for (language, end) in [(Language::C99, "c"), (Language::Cpp17, "cpp")] {
        for (order, text) in [[cuda, header, body], [header, cuda, body]].iter().enumerate() {
            let source = folder.path().join(format!("cuda{order}.{end}"));
            let declared = "regraph_error f(const regraph_engine *, regraph_pool, CUstream, regraph_block *);\n\
                            regraph_error g(const regraph_engine *, regraph_capture_id, CUgraph);\n";
            std::fs::write(&source, [text[0], text[1], declared, text[2]].concat()).unwrap();
            compile(language, &source, &folder.path().join("cuda.o"), &["-c"]);
        }
    }
}
