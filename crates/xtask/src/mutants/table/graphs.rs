//! Graphs and the order of their launches.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "launch-order",
        rule: "A launch comes after one on another stream.",
        file: "src/graphs/order.rs",
        edits: &[("*last != stream", "false")],
        test: "graphs::lives::a_graph_is_ordered_in_every_pool_that_its_capture_used",
    },
    Mutant {
        name: "launch-follows",
        rule: "A launch comes after the latest one in each of its graph's pools.",
        file: "src/graphs/lease.rs",
        edits: &[("order.follow(launched)?;", "")],
        test: "reports::remedies::what_stands_in_the_way_of_a_suspension_is_told_with_what_helps",
    },
    Mutant {
        name: "taken-over",
        rule: "A graph that is taken over by its id is ordered in all its pools.",
        file: "src/graphs/lease.rs",
        edits: &[("pools.push((owner.ok_or_else(going)?, graph));", "")],
        test: "graphs::lives::a_graph_taken_over_by_its_id_is_ordered_and_released",
    },
    Mutant {
        name: "default-stream",
        rule: "A default stream is refused where a graph's pools are of several devices.",
        file: "src/graphs/lease.rs",
        edits: &[("stream.is_default() && !one_engine", "false")],
        test: "graphs::lives::a_default_stream_says_too_little_where_the_pools_are_of_several_devices",
    },
    Mutant {
        name: "one-engine",
        rule: "A default stream says too little where a graph's pools are of several devices, whichever comes first.",
        file: "src/graphs/lease.rs",
        edits: &[("Arc::ptr_eq(pool.engine(), first.engine())", "true")],
        test: "graphs::lives::a_default_stream_says_too_little_where_the_pools_are_of_several_devices",
    },
    Mutant {
        name: "no-pool",
        rule: "A lease is of a graph that has pools.",
        file: "src/graphs/lease.rs",
        edits: &[("pools.is_empty()", "false")],
        test: "graphs::lives::a_graph_taken_over_by_its_id_is_ordered_and_released",
    },
    Mutant {
        name: "pool-goes",
        rule: "A pool that is dropped goes.",
        file: "src/graphs/pool.rs",
        edits: &[("self.engine.let_pool_go(self.id);", "")],
        test: "captures::two_steps::a_refusal_leaves_nothing_of_a_graph",
    },
    Mutant {
        name: "launch-stream",
        rule: "A launch comes after one on a stream that is gone and had the same handle.",
        file: "src/graphs/order.rs",
        edits: &[("*last != stream =>", "last.stream != stream.stream =>")],
        test: "graphs::lives::a_stream_made_again_comes_after_launches_on_the_one_before",
    },
    Mutant {
        name: "panicked-launch",
        rule: "A launch that panicked comes before the next.",
        file: "src/graphs/lease.rs",
        edits: &[("if self.pending {", "if false {")],
        test: "graphs::lives::a_launch_that_panicked_comes_before_the_next",
    },
    Mutant {
        name: "lost-order",
        rule: "The order of launches is lost where a stream cannot be made to follow the latest.",
        file: "src/graphs/order.rs",
        edits: &[("self.follow(stream).is_err()", "false")],
        test: "graphs::lives::a_filling_that_cannot_follow_loses_the_order",
    },
    Mutant {
        name: "kept-pool",
        rule: "A graph that keeps its pool is not put aside in it.",
        file: "src/graphs/order.rs",
        edits: &[("retired.kept.is_empty()", "true")],
        test: "graphs::lives::a_graph_dropped_in_flight_that_keeps_its_pool_goes_with_it",
    },
];
