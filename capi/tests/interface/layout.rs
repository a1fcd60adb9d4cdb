//! The structures of `include/regraph.h` lie for C and C++ compilers as for the library: sizes and offsets.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};

use regraph_c::*;

use crate::support::{compile, include, Language};

/// Fields without a meaning of their own, which callers do not see in Rust.
const UNSEEN: [&str; 2] = ["words", "unused"];

macro_rules! layouts {
    ($($name:ident { $($field:ident),* })*) => {
        /// Each structure with its size in bytes, and its fields with their offsets.
        const LAYOUTS: &[(&str, usize, &[(&str, usize)])] = &[$((
            stringify!($name),
            size_of::<$name>(),
            &[$((stringify!($field), offset_of!($name, $field))),*],
        )),*];
    };
}

layouts! {
    regraph_device { name, total_bytes, ordinal }
    regraph_pool {  }
    regraph_block_id {  }
    regraph_block { id, address, bytes }
    regraph_plan_options { max_mappings, max_piece_bytes, max_share_percent, pool_graphs }
    regraph_graph_id {  }
    regraph_loan_id {  }
    regraph_loan { id, bytes, handle, handle_bytes }
    regraph_taken_loan { id, address, bytes }
    regraph_capture_report { capture, graph, nodes, blocks, dependency_queries, late_uses, verified, planned_bytes, planned_new_bytes, planned_minimum_bytes, mappings, layout_blocks, layout_followed, plan_share_percent, mappings_within_share }
    regraph_needs { pool_bytes, executable_bytes, most_pool_bytes, most_executable_bytes }
    regraph_executable_figures { graphs, graph_nodes, graph_bytes, executables, nodes, bytes, measured, counted, made, updates, evicted, refused }
    regraph_region { tag, awake_bytes, asleep_bytes, host_bytes, pools, backup, slept, woke, file_bytes, folder }
    regraph_region_moved { bytes, copied_bytes, dropped_bytes, nanoseconds }
    regraph_free_range { address, bytes, block, marker, stream, capture, text, refusal, has_block, has_stream }
    regraph_figure { current, peak, allocated, freed }
    regraph_figures { allocation, allocated_bytes, requested_bytes, active, active_bytes, inactive_split, inactive_split_bytes, segment, reserved_bytes, suspended_bytes }
    regraph_counts { num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free, num_captures_verified, num_captures_unjudged, num_captures_refused, num_captures_again, check_ns }
    regraph_statistics { all, small_pool, large_pool, counts }
    regraph_pool_info { pool, name, tag, reserved_bytes, allocated_bytes, blocks }
    regraph_emptied { released, waiting, reserved }
    regraph_leak { block, address, bytes, stream, text, pool }
    regraph_out_of_memory { requested, limit, reserved, allocated, takeable, waiting, engine_limit, engine_reserved, engine_allocated, engine_suspended, in_graphs, device_free, device_total, stream, text, pool, capturing, growable, kept_by_graphs }
}

/// The structures of the header with their fields.
fn declared() -> BTreeSet<(String, String)> {
    let text = std::fs::read_to_string(include().join("regraph.h")).unwrap();
    let mut declared = BTreeSet::new();
    for structure in text.split("typedef struct ").skip(1) {
        let Some((name, rest)) = structure.split_once(" {\n") else { continue };
        if name.contains([';', '\n']) {
            continue;
        }
        for line in rest.split('}').next().unwrap().lines().map(str::trim) {
            let Some(field) = line.strip_suffix(';').filter(|_| !line.starts_with('*')) else {
                continue;
            };
            let field = field.split('[').next().unwrap().rsplit([' ', '*']).next().unwrap();
            declared.insert((name.to_owned(), field.to_owned()));
        }
    }
    declared
}

#[test]
fn structures_lie_as_compilers_have_them() {
    let mut known = BTreeSet::new();
    let mut text = "#include <stddef.h>\n#include <regraph.h>\n".to_owned();
    let mut must = |name: &str, what: String| {
        writeln!(text, "typedef char {name}[{what} ? 1 : -1];").unwrap();
    };
    for &(name, bytes, fields) in LAYOUTS {
        must(&format!("size_of_{name}"), format!("sizeof({name}) == {bytes}"));
        for &(field, offset) in fields {
            let what = format!("offsetof({name}, {field}) == {offset}");
            must(&format!("offset_of_{name}_{field}"), what);
            known.insert((name.to_owned(), field.to_owned()));
        }
    }
    let named = |name: &str| LAYOUTS.iter().any(|it| it.0 == name);
    let declared = declared();
    assert!(declared.len() > 100, "{} fields were found", declared.len());
    for (name, field) in declared {
        let seen = known.contains(&(name.clone(), field.clone()));
        assert!(
            seen || named(&name) && UNSEEN.contains(&&*field),
            "{name}.{field} is not compared"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    for (language, file) in [(Language::C99, "layout.c"), (Language::Cpp17, "layout.cpp")] {
        let source = folder.path().join(file);
        std::fs::write(&source, format!("{text}int main(void);\n")).unwrap();
        compile(language, &source, &folder.path().join("layout.o"), &["-c"]);
    }
}
