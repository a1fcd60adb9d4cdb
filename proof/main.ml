(* check TRACE PLACEMENTS CERTIFICATES: holds each capture of a trace against the proven check.

   Exit status: 0 if all is accepted, 1 if something is refused, 2 if a file cannot be read. *)

open Checker
open Reader

let refuse format = Printf.ksprintf (fun text -> raise (Bad text)) format

let judge_capture trace places index capture said =
  let count what found expected =
    if found <> expected then refuse "capture %d has %d %s, not %d" index found what expected
  in
  count "nodes" capture.nodes said.said_nodes;
  count "blocks" capture.blocks said.said_blocks;
  let judged =
    match judge said.policy capture.journal with
    | Some judged -> judged
    | None -> refuse "capture %d is none: nodes, blocks or looks are not as they must be" index
  in
  if not (check_places judged places) then refuse "capture %d: blocks without an order between them share memory" index;
  let certificate =
    {
      minimum = number said.least;
      chosen = List.map (fun (id, bytes) -> (name id, number bytes)) said.antichain;
      thresholds = List.map (fun (stream, nodes) -> (name stream, List.map name nodes)) said.at;
      chains = chains judged said.passed;
    }
  in
  if not (check_lower said.policy judged certificate) then refuse "capture %d: the antichain proves no such minimum" index;
  if not (check_upper judged certificate) then refuse "capture %d: the cover does not come to the minimum" index;
  Printf.printf "%s, capture %d: %d nodes, %d blocks, none aliased; %d bytes are the least\n" (Filename.basename trace)
    index capture.nodes capture.blocks said.least

let () =
  match Sys.argv with
  | [| _; trace; placed; certificates |] -> (
      try
        let captures = captures (lines trace operation) in
        let places = placements placed in
        let said = lines certificates certificate in
        if List.map (fun it -> it.of_capture) said <> List.mapi (fun index _ -> index) captures then
          refuse "expected a certificate for each of %d captures, in their order" (List.length captures);
        List.iteri (fun index (capture, said) -> judge_capture trace places index capture said) (List.combine captures said)
      with
      | Bad why ->
          Printf.eprintf "refused: %s\n" why;
          exit 1
      | Sys_error why ->
          prerr_endline why;
          exit 2)
  | _ ->
      prerr_endline "usage: check TRACE PLACEMENTS CERTIFICATES";
      exit 2
