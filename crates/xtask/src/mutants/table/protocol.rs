//! Launches, loans and sleep, against the model.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "protocol-order",
        rule: "A launch comes after the pool's last one, on whichever stream.",
        file: "src/graphs/order.rs",
        edits: &[(
            "Some((last, event)) if *last != stream => {",
            "Some((last, event)) if *last != stream && false => {",
        )],
        test: "protocol::the_engine_answers_as_the_model_does",
    },
    Mutant {
        name: "launch-asleep",
        rule: "A pool without its memory launches nothing.",
        file: "src/graphs/order.rs",
        edits: &[(
            "if self.asks.load(Ordering::Acquire) {\n            self.engine.host().require_awake",
            "if false {\n            self.engine.host().require_awake",
        )],
        test: "protocol::the_engine_answers_as_the_model_does",
    },
    Mutant {
        name: "launch-retired",
        rule: "A graph that is dropped in flight is its pool's until it has finished.",
        file: "src/graphs/order.rs",
        edits: &[(
            "Ok(event) => retired.events.extend(event),",
            "Ok(_) => {}",
        )],
        test: "protocol::the_engine_answers_as_the_model_does",
    },
    Mutant {
        name: "launch-finished",
        rule: "Of graphs that were dropped in flight those are released that have finished.",
        file: "src/graphs/order.rs",
        edits: &[(
            "of.events.iter().all(|event| event.is_completed());",
            "of.events.is_empty() || true;",
        )],
        test: "protocol::the_engine_answers_as_the_model_does",
    },
    Mutant {
        name: "hold-waits",
        rule: "Memory is taken from under no launch that runs: it is waited for.",
        file: "src/graphs/order.rs",
        edits: &[(
            "Some(event) if wait => event.synchronize()?,",
            "Some(_) if wait => {}",
        )],
        test: "protocol::the_engine_answers_as_the_model_does",
    },
    Mutant {
        name: "hold-refuses",
        rule: "A sleep that does not wait is refused while a launch runs.",
        file: "src/graphs/order.rs",
        edits: &[(
            "Some(_) => return Err(order.engine.refuse(order.pool, \"try_sleep\", PoolRefusal::Runs)),",
            "Some(_) => {}",
        )],
        test: "protocol::the_engine_answers_as_the_model_does",
    },
    Mutant {
        name: "launch-asks",
        rule: "The launches of a pool that is shut ask whether it is.",
        file: "src/engine/pools.rs",
        edits: &[("lends || self.is_shut(id)", "lends")],
        test: "protocol::the_engine_answers_as_the_model_does",
    },
    Mutant {
        name: "sleep-kept",
        rule: "A sleep keeps what graphs without a plan keep between launches.",
        file: "src/engine/suspend.rs",
        edits: &[(
            "live.extend(self.pools.heap(heap).kept_places());",
            "let _ = heap;",
        )],
        test: "protocol::the_engine_answers_as_the_model_does",
    },
    Mutant {
        name: "sleep-kept-planned",
        rule: "A sleep keeps outputs of planned graphs that were freed.",
        file: "src/engine/suspend.rs",
        edits: &[(
            "live.extend(self.pools.planned(heap).freed_outputs());",
            "let _ = heap;",
        )],
        test: "protocol::the_engine_answers_as_the_model_does",
    },
    Mutant {
        name: "sleep-blocks",
        rule: "A sleep keeps what live blocks hold.",
        file: "src/engine/suspend.rs",
        edits: &[(
            "live.extend(self.blocks.of(pool).map(|block| self.pools.place(block.site)));",
            "();",
        )],
        test: "protocol::the_engine_answers_as_the_model_does",
    },
    Mutant {
        name: "sleep-busy",
        rule: "A pool does not go while work may use what was freed there.",
        file: "src/engine/suspend.rs",
        edits: &[(
            "if captures + waiting > 0 {",
            "if captures > 0 {",
        )],
        test: "protocol::the_engine_answers_as_the_model_does",
    },
];
