//! The plug-in.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "pool-limited",
        rule: "A pool never holds more than was said of its name before its first use.",
        file: "crates/plugin/src/device.rs",
        edits: &[("config.max_bytes = limit;", "")],
        test: "plugin::named_pools::a_pool_never_holds_more_than_it_may_and_its_graphs_go_on",
    },
    Mutant {
        name: "granted-twice",
        rule: "A request that was granted is not made again.",
        file: "crates/plugin/src/sources.rs",
        edits: &[("if result.is_ok() {
            break;
        }", "")],
        test: "plugin::named_pools::a_request_that_a_source_is_asked_twice_for_is_granted_once",
    },
    Mutant {
        name: "stray-capture",
        rule: "A capture that its host did not announce gets no memory behind its verdict.",
        file: "crates/plugin/src/captures.rs",
        edits: &[("if let Some(stray) = pools.strays.get_mut(&capture) {
            stray.open = false;
            device.reports.push(UNNAMED, report);
        }", "")],
        test: "plugin::pytorch::a_capture_gets_no_memory_behind_its_verdict",
    },
    Mutant {
        name: "released-by-others",
        rule: "What is released while a capture fails is not taken for its own.",
        file: "crates/plugin/src/captures.rs",
        edits: &[("if let Some(announced) = announced.get_mut(&stream) {
            announced.releases = private.get(&announced.key).map_or(0, |private| private.releases);
        }", "")],
        test: "plugin::pytorch::what_others_let_go_of_while_a_capture_is_under_way_is_not_taken_for_its_own",
    },
    Mutant {
        name: "tree-unplanned",
        rule: "A pool that served eager work is captured without a plan.",
        file: "crates/plugin/src/captures.rs",
        edits: &[("private.eager |= !captured && private.graphs.len() == before;", "")],
        test: "checkpoints::trees::a_tree_s_captures_have_no_plan",
    },
    Mutant {
        name: "pool-users",
        rule: "A pool goes with its last user.",
        file: "crates/plugin/src/device.rs",
        edits: &[("private.users += 1;", "")],
        test: "plugin::pytorch::short_of_memory_pools_without_graphs_go_first",
    },
    Mutant {
        name: "let-go-meanwhile",
        rule: "Memory of a graph that was let go of during a wait for the device does not go behind that wait.",
        file: "crates/plugin/src/device.rs",
        edits: &[("|graph| left.contains(graph)", "|_| true")],
        test: "plugin::pytorch::a_pool_is_let_go_of_while_a_call_waits_for_the_device",
    },
    Mutant {
        name: "compaction-unheld",
        rule: "No launch that the host tells of begins while a compaction waits for the device.",
        file: "crates/plugin/src/compact.rs",
        edits: &[("self.under_way.hold(true).ok_or(Error::Launching { call: CALL })?", "()")],
        test: "plugin::pytorch::a_compaction_holds_launches",
    },
    Mutant {
        name: "spare-asked",
        rule: "A pool offers what is spare only where that was asked for.",
        file: "crates/plugin/src/named.rs",
        edits: &[("private.spare = if on { Spare::OfferedWhenShort } else { Spare::Kept };", "")],
        test: "plugin::named_pools::eager_requests_take_from_a_pool_before_they_fail_if_it_lets_them",
    },
    Mutant {
        name: "caching-off",
        rule: "A thread's requests go where they went once its route ends.",
        file: "crates/plugin/src/routes.rs",
        edits: &[("stands.store(false, Ordering::Release);", "")],
        test: "plugin::named_pools::caching_goes_off_and_on",
    },
    Mutant {
        name: "handle-waits",
        rule: "Memory of other processes is unmapped behind all work of all devices.",
        file: "crates/plugin/src/sharing.rs",
        edits: &[("devices.iter().any(|device| device.engine.driver().synchronize().is_err())", "true")],
        test: "sharing::handles::a_handle_is_opened_once_and_unmapped_with_its_last_user",
    },
];
