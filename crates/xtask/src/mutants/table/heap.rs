//! Memory that has not been planned: where blocks lie, and who may have what is free.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "whole-blocks",
        rule: "Blocks of pools that do not split have segments of their own.",
        file: "src/engine/pools.rs",
        edits: &[("supply, config.no_split, settings", "supply, false, settings")],
        test: "random::named_pools::the_plug_in_keeps_to_the_model_in_longer_programs",
    },
    Mutant {
        name: "carve-tries",
        rule: "A search for neighbours begins anew behind one that may not be taken.",
        file: "src/heap/place.rs",
        edits: &[("missing = bytes;", "")],
        test: "plans::heard::requests_of_streams_are_heard_in_the_order_of_the_calls",
    },
    Mutant {
        name: "usual-most",
        rule: "Growth maps at once what the latest two captures both needed, and not what one of them did.",
        file: "src/engine/captures.rs",
        edits: &[("self.held[0][class].min(self.held[1][class])", "self.held[0][class].max(self.held[1][class])")],
        test: "blocks::growth::a_capture_like_the_latest_ones_maps_once",
    },
    Mutant {
        name: "no-inputs",
        rule: "A capture is expected wherever a pool of graphs has a block.",
        file: "src/engine/memory.rs",
        edits: &[(
            "state.blocks.count() > state.blocks.count_of(pool)",
            "state.blocks.count() < state.blocks.count_of(pool)",
        )],
        test: "checkpoints::trees::what_a_capture_frees_of_earlier_graphs_takes_its_blocks",
    },
    Mutant {
        name: "active-twice",
        rule: "A block that waits once it is freed does not become active again.",
        file: "src/engine/free.rs",
        edits: &[("        self.state.count_waiting(heap, bytes);\n", "")],
        test: "blocks::basics::a_block_that_waits_became_active_once",
    },
    Mutant {
        name: "equal-addresses",
        rule: "The more pools there are, the fewer addresses each reserves.",
        file: "src/engine/pools.rs",
        edits: &[("let share = bytes / pools.max(ROOMY) * ROOMY;", "let share = bytes;")],
        test: "blocks::growth::three_thousand_pools_of_a_large_device_have_addresses",
    },
    Mutant {
        name: "scarce-addresses",
        rule: "Where so many addresses are not free, a segment reserves fewer.",
        file: "src/heap/segment.rs",
        edits: &[(
            "error.is_out_of_memory() && bytes > least",
            "error.is_out_of_memory() && bytes < least",
        )],
        test: "blocks::growth::a_pool_reserves_less_where_addresses_are_scarce",
    },
    Mutant {
        name: "closed-neighbours",
        rule: "What is left over of a hole joins what is free above it.",
        file: "src/heap/grow.rs",
        edits: &[("matches!(self.ranges[it].state, RangeState::Idle { .. })", "false")],
        test: "blocks::growth::what_is_left_over_of_a_hole_joins_what_is_free_above_it",
    },
    Mutant {
        name: "segment-own",
        rule: "A block that was allocated by the driver is freed by it.",
        file: "src/heap/segment.rs",
        edits: &[(
            "holding: &mut Holding,
    ) -> Result<(), DriverError> {
        if self.is_allocated() {
            return self.free(driver);
        }",
            "holding: &mut Holding,
    ) -> Result<(), DriverError> {
        if false {
            return self.free(driver);
        }",
        )],
        test: "blocks::eager::without_caching_every_block_is_an_allocation_of_its_own",
    },
    Mutant {
        name: "cached-count",
        rule: "What a stream cache takes back is counted within what it may keep.",
        file: "src/engine/stream_cache.rs",
        edits: &[("self.counted.rise(pool).give(class, bytes, requested)", "false")],
        test: "rules::of_eager_work",
    },
    Mutant {
        name: "cached-stranger",
        rule: "A use of a stream cache's block is noted in that cache.",
        file: "src/engine/free.rs",
        edits: &[(
            "if block.engine != self.number || block.cache == NO_CACHE {
            return Ok(false);",
            "if true {
            return Ok(false);",
        )],
        test: "blocks::eager::a_retired_streams_block_can_be_used_by_the_next_of_that_name",
    },
    Mutant {
        name: "carved-graphs",
        rule: "A block over several free parts is a graph's where one of them was.",
        file: "src/heap/place.rs",
        edits: &[("users = users.or_graphs(users_of(state).are_graphs());", "")],
        test: "rules::of_captures",
    },
    Mutant {
        name: "forgets-graphs",
        rule: "A heap whose pool has no graph any more knows none of their memory.",
        file: "src/engine/end.rs",
        edits: &[("self.state.pools.heap_mut(heap).forget_graphs();", "")],
        test: "rules::of_captures",
    },
];
