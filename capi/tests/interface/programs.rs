//! Programs in C and C++, built by the system's compilers and run against the built library.

use std::path::{Path, PathBuf};

use crate::support::{self, build_and_run, build_and_try, compile, sanitizers, Language, Linked};
use regraph::snapshot::Snapshot;

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn the_example_says_what_it_is_to_say() {
    let example = source("examples/multi_stream.c");
    let (printed, _) = build_and_run(Language::C99, &example, Linked::Shared);
    for line in [
        "regraph 0.",
        "explain: 4 MiB at ",
        "second: new memory",
        "third: the first's place",
        "observer: 1024 MiB asked for, the pool holds 8 of 64 MiB",
        "REGRAPH_ERROR_OUT_OF_MEMORY: out of memory",
        "told 1 time",
        "graph: 4 nodes, 3 blocks, verified",
        "statistics: 8 MiB reserved, 8 MiB allocated, 8 MiB at most, 1 out of memory",
    ] {
        assert!(printed.contains(line), "it does not say \"{line}\":\n{printed}");
    }
}

#[test]
fn every_call_from_c() {
    for linked in [Linked::Shared, Linked::Static] {
        let (printed, folder) = build_and_run(Language::C99, &source("tests/c/walk.c"), linked);
        assert!(printed.ends_with(" checks\n"), "{printed}");
        files_are_whole(folder.path());
    }
}

/// What the walk has written can be read.
fn files_are_whole(folder: &Path) {
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let trace = regraph_trace::read(&*read("capture.jsonl")).unwrap();
    assert_eq!((trace.captures(), trace.nodes(), trace.blocks()), (1, 4, 3));
    assert_eq!(regraph_trace::read(&*read("empty.jsonl")).unwrap().blocks(), 0);
    let snapshot = Snapshot::read_json(&*read("snapshot.json")).unwrap();
    assert_eq!(snapshot.segments.len(), 1);
    regraph_trace::snapshot::validate(&snapshot).unwrap();
    assert_eq!(read("snapshot.pickle")[..2], [0x80, 2], "a pickle of protocol 2");
}

/// Named in the walk, so that none is forgotten.
#[test]
fn the_walk_leaves_no_call_out() {
    let header = std::fs::read_to_string(support::include().join("regraph.h")).unwrap();
    let walk = ["tests/c/walk.c", "tests/c/graphs.c", "tests/c/loans.c", "tests/c/regions.c"]
        .map(|path| std::fs::read_to_string(source(path)).unwrap())
        .concat();
    let calls = header.lines().filter(|line| !line.trim_start().starts_with('*'));
    let calls: Vec<_> = calls
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("regraph_"))
        .collect();
    assert!(calls.len() > 50, "{calls:?}");
    for call in calls {
        assert!(walk.contains(&format!("{call}(")), "the walk does not call {call}");
    }
}

/// What the header says of a call's errors, word by word, with what it says of the calls that this refers to.
fn told_of_errors(header: &str, call: &str, depth: usize) -> Vec<String> {
    let (before, _) = header.split_once(&format!("regraph_error {call}(")).unwrap();
    let text = &before[before.rfind("/**").unwrap()..];
    let errors = text.split_once("rrors").map_or("", |(_, errors)| errors).replace("\n *", "");
    let words: Vec<_> =
        errors.split(|c: char| !c.is_alphanumeric() && !"_()".contains(c)).collect();
    let others = words.windows(2).filter(|pair| depth > 0 && ["as", "of"].contains(&pair[0]));
    let others = others.filter(|pair| pair[1].starts_with("regraph_"));
    let others = others.filter_map(|pair| pair[1].strip_suffix("()"));
    let others = others.flat_map(|other| told_of_errors(header, other, depth - 1));
    words.iter().map(ToString::to_string).chain(others).collect()
}

/// What a program gets from a call stands beside the call, but for what holds of all calls.
#[test]
fn codes_of_calls_stand_in_the_header() {
    let header = std::fs::read_to_string(support::include().join("regraph.h")).unwrap();
    for name in ["walk", "graphs", "loans", "names", "regions"] {
        let program = std::fs::read_to_string(source(&format!("tests/c/{name}.c"))).unwrap();
        let expected = program.split("(REGRAPH_ERROR_").skip(1);
        for (code, rest) in expected.filter_map(|it| it.split_once(',')) {
            let call = rest.trim_start().split('(').next().unwrap();
            let of_all = ["NULL", "DESTROYED"].contains(&code) || call.starts_with("regraph_sim_");
            if call.starts_with("regraph_") && !of_all {
                let code = format!("REGRAPH_ERROR_{code}");
                assert!(told_of_errors(&header, call, 3).contains(&code), "{call}: {code}");
            }
        }
    }
}

#[test]
fn names_of_other_engines_and_of_what_is_gone() {
    let (printed, _) = build_and_run(Language::C99, &source("tests/c/names.c"), Linked::Shared);
    assert!(printed.ends_with(" checks\n"), "{printed}");
}

#[test]
fn a_process_that_forks_goes_on() {
    let (printed, _) = build_and_run(Language::C99, &source("tests/c/fork.c"), Linked::Shared);
    assert!(printed.ends_with(" checks\n"), "{printed}");
}

#[test]
fn graphs_and_the_order_of_their_launches() {
    let (printed, _) = build_and_run(Language::C99, &source("tests/c/graphs.c"), Linked::Shared);
    assert!(printed.ends_with(" checks\n"), "{printed}");
}

#[test]
#[cfg(target_os = "linux")]
fn loans_between_processes() {
    let (printed, _) = build_and_run(Language::C99, &source("tests/c/loans.c"), Linked::Shared);
    assert!(printed.ends_with(" checks\n"), "{printed}");
}

#[test]
fn regions_that_sleep_and_wake() {
    let (printed, _) = build_and_run(Language::C99, &source("tests/c/regions.c"), Linked::Shared);
    assert!(printed.ends_with(" checks\n"), "{printed}");
}

#[test]
fn the_cpp_layer() {
    let (printed, _) = build_and_run(Language::Cpp17, &source("tests/c/layer.cpp"), Linked::Shared);
    assert!(printed.ends_with(" checks\n"), "{printed}");
}

/// In a program that is built for per-thread default streams 0 means one of these, also to RMM.
#[test]
fn the_cpp_layer_with_default_streams_of_threads() {
    let program = source("tests/c/per_thread.cpp");
    let (printed, folder) = build_and_run(Language::Cpp17, &program, Linked::Shared);
    assert!(printed.ends_with(" checks\n"), "{printed}");
    let mirrors = format!("-I{}", source("tests/c/mirrors").display());
    let built_for = "-DCUDA_API_PER_THREAD_DEFAULT_STREAM";
    let object = folder.path().join("nothing.o");
    let rmm = source("tests/c/rmm.cpp");
    compile(Language::Cpp17, &rmm, &object, &["-c", &mirrors, built_for, "-fsyntax-only"]);
}

/// RMM's callbacks get streams of one class in some versions and of another in others.
#[test]
fn a_memory_resource_of_rmm() {
    let program = source("tests/c/rmm.cpp");
    let (printed, folder) = build_and_run(Language::Cpp17, &program, Linked::Shared);
    assert!(printed.ends_with(" checks\n"), "{printed}");
    let mirrors = format!("-I{}", source("tests/c/mirrors").display());
    let arguments = ["-c", &mirrors, "-DRMM_MIRROR_STREAM=rmm::cuda_stream_view", "-fsyntax-only"];
    compile(Language::Cpp17, &program, &folder.path().join("nothing.o"), &arguments);
}

/// It needs no exceptions, and can be in several files of a program.
#[test]
fn the_cpp_layer_without_exceptions() {
    let folder = tempfile::tempdir().unwrap();
    // The compiler looks into a template where it is used.
    let text = "#include <regraph.hpp>\n#include <regraph.hpp>\n\
        void NAME(const regraph::pool &p, const regraph::engine &e) {\n\
            regraph_error code;\n\
            p.try_allocate(1, nullptr, code);\n\
            p.record(nullptr, [](regraph::capture &) {});\n\
            p.record_twice(nullptr, [](regraph::capture &) { return 1; });\n\
            regraph::estimate(e).record(nullptr, [](regraph::capture &) {});\n\
            regraph::devices([](const regraph_device &) {});\n\
            e.pools([](const regraph_pool_info &) {});\n\
            e.regions([](const regraph_region &) {});\n\
            e.learn([] {});\n\
        }\n";
    for name in ["first", "second"] {
        let source = folder.path().join(name).with_extension("cpp");
        std::fs::write(&source, text.replace("NAME", name)).unwrap();
        let object = source.with_extension("o");
        compile(Language::Cpp17, &source, &object, &["-c", "-fno-exceptions"]);
    }
    let main = folder.path().join("main.cpp");
    std::fs::write(&main, "int main() { return 0; }\n").unwrap();
    let library = support::libraries().join("libregraph_c.so");
    let objects = ["first.o", "second.o"].map(|name| folder.path().join(name));
    let linked = [&objects[0], &objects[1], &library].map(|path| path.to_str().unwrap());
    let arguments = [&linked, sanitizers(Language::Cpp17)].concat();
    compile(Language::Cpp17, &main, &folder.path().join("program"), &arguments);
}

#[test]
fn the_cpp_example_says_what_it_is_to_say() {
    let example = source("examples/two_streams.cpp");
    let (printed, _) = build_and_run(Language::Cpp17, &example, Linked::Shared);
    for line in [
        "output: 4 MiB at ",
        "graph: 4 MiB reserved, 4 MiB needed at least",
        "REGRAPH_ERROR_OUT_OF_MEMORY: out of memory",
    ] {
        assert!(printed.contains(line), "it does not say \"{line}\":\n{printed}");
    }
}

/// The programs of the README, with the variables that they leave out, on the simulated device.
#[test]
fn the_readmes_programs_run() {
    let readme = std::fs::read_to_string(source("README.md")).unwrap();
    let program = |language: &str| {
        let text = readme.split(&format!("```{language}\n")).nth(1).unwrap();
        text.split("```").next().unwrap().to_owned()
    };
    let c = program("c").replace(
        "regraph_engine_create_cuda(0, NULL, &engine);",
        "regraph_engine_create_sim(0, NULL, &engine); regraph_sim_create_stream(engine, &stream);",
    );
    let (include, body) = c.split_once("\n\n").unwrap();
    let c = format!(
        "{include}\n#include <stdio.h>\n\
         static void launch_kernels(regraph_stream s, uint64_t a) {{ (void)s; (void)a; }}\n\
         int main(void) {{\nregraph_engine *engine; regraph_pool pool; regraph_stream stream;\n\
         regraph_capture_id capture; regraph_block block; regraph_capture_report report;\n\
         {body}return report.blocks == 1 ? 0 : 1;\n}}\n"
    );
    let cpp = program("cpp").replace(
        "regraph::engine::cuda(0);",
        "regraph::engine::sim(); regraph_sim_create_stream(engine.raw(), &stream);",
    );
    let (include, body) = cpp.split_once("\n\n").unwrap();
    let cpp = format!(
        "{include}\nstatic void launch_kernels(regraph_stream, std::uint64_t, std::uint64_t) {{}}\n\
         int main() {{\nregraph_stream stream = nullptr;\n\
         {body}return graph.report().blocks == 2 && output.bytes() == 1 << 20 ? 0 : 1;\n}}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    for (language, name, text) in
        [(Language::C99, "readme.c", c), (Language::Cpp17, "readme.cpp", cpp)]
    {
        let source = folder.path().join(name);
        std::fs::write(&source, text).unwrap();
        build_and_run(language, &source, Linked::Shared);
    }
}

#[test]
fn threads_from_cpp() {
    let threads = source("tests/c/threads.cpp");
    let (printed, _) = build_and_run(Language::Cpp17, &threads, Linked::Shared);
    assert_eq!(printed, "four threads\n");
}

/// An error of address inside the library, which the caller's pointer leads to, is found where the
/// library is sanitized itself.
#[test]
fn a_use_of_a_destroyed_config_is_found() {
    if support::sanitized_libraries().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("destroyed.c");
    let text = "#include <regraph.h>\nint main(void) {\n\
        regraph_config *config; regraph_engine *engine;\n\
        if (regraph_config_create(&config) != REGRAPH_OK) return 2;\n\
        regraph_config_destroy(config);\n\
        return regraph_engine_create_sim(0, config, &engine);\n}\n";
    std::fs::write(&source, text).unwrap();
    let (done, _folder) = build_and_try(Language::C99, &source, Linked::Shared);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("heap-use-after-free"), "{}\n{said}", done.status);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_capture_on_a_gpu_from_c() {
    let (printed, folder) = build_and_run(Language::C99, &source("tests/c/gpu.c"), Linked::Shared);
    assert!(printed.ends_with(" checks\n"), "{printed}");
    let trace = std::fs::read(folder.path().join("capture.jsonl")).unwrap();
    assert_eq!(regraph_trace::read(&*trace).unwrap().blocks(), 4);
}

/// It needs no GPU to be compiled.
#[test]
fn the_program_for_gpus_compiles() {
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("gpu.o");
    compile(Language::C99, &source("tests/c/gpu.c"), &object, &["-c"]);
}
