(** What the theorems rest on, which must be nothing. *)

From Regraph Require Import Order Capture Memory Checker Meeting Uses.

Definition theorems :=
  (completed_in_runs, completed_in_extensions, clocks_reach, clocks_completed, marker_rule_orders, no_block_is_aliased,
   no_block_is_aliased_in_extensions, antichain_bounds, cover_bounds, antichain_and_cover, unordered_blocks_may_meet,
   launch_is_gained, end_has, check_sound).

Print Assumptions theorems.
