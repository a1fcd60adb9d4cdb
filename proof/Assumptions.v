(** What the theorems rest on, which must be nothing. *)

From Regraph Require Import Order Capture Memory Checker Meeting.

Print Assumptions completed_in_runs.
Print Assumptions completed_in_extensions.
Print Assumptions clocks_reach.
Print Assumptions clocks_completed.
Print Assumptions marker_rule_orders.
Print Assumptions no_block_is_aliased.
Print Assumptions no_block_is_aliased_in_extensions.
Print Assumptions antichain_bounds.
Print Assumptions cover_bounds.
Print Assumptions antichain_and_cover.
Print Assumptions check_sound.
Print Assumptions unordered_blocks_may_meet.
