(* Holds what was read against the proven check. *)

open Checker
open Reader

let refuse format = Printf.ksprintf (fun text -> raise (Bad text)) format

let certificate_of judged said =
  {
    minimum = number said.least;
    chosen = List.map (fun (id, bytes) -> (name id, number bytes)) said.antichain;
    thresholds = List.map (fun (stream, nodes) -> (name stream, List.map name nodes)) said.at;
    chains = chains judged said.passed;
  }

(* Refuses a capture, or does nothing. *)
let capture places index capture said =
  let count what found expected =
    if found <> expected then refuse "capture %d has %d %s, not %d" index found what expected
  in
  count "nodes" capture.nodes said.said_nodes;
  count "blocks" capture.blocks said.said_blocks;
  match judge said.policy capture.journal with
  | None -> refuse "capture %d is none: its nodes, blocks or looks are not as they must be" index
  | Some judged ->
      if not (check_places judged places) then
        refuse "capture %d: blocks without an order between them share memory" index;
      let certificate = certificate_of judged said in
      if not (check_lower said.policy judged certificate) then
        refuse "capture %d: the antichain proves no such minimum" index;
      if not (check_upper judged certificate) then refuse "capture %d: the cover does not come to the minimum" index
