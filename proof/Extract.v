(** The check as OCaml. Only Coq's own pairs, lists, options and truth values become OCaml's: numbers stay what they are
    here, so that nothing is trusted of them. *)

From Coq Require Import Extraction ExtrOcamlBasic.
From Regraph Require Import Order Capture Memory Checker.

Extraction Language OCaml.
Extraction "checker.ml" check judge check_places check_lower check_upper.
