(* check TRACE PLACEMENTS CERTIFICATES...: holds each capture of traces against the proven check. Takes any number of
   such three files.

   Exit status: 0 if all is accepted, 1 if something is refused, 2 if a file cannot be read. *)

open Reader

let check trace placed certificates =
  let captures = captures (lines trace operation) in
  let places = placements placed in
  let said = lines certificates certificate in
  if List.map (fun it -> it.of_capture) said <> List.mapi (fun index _ -> index) captures then
    Judge.refuse "expected a certificate for each of %d captures, in their order" (List.length captures);
  List.iteri (fun index (capture, said) -> Judge.capture places index capture said) (List.combine captures said);
  List.combine captures said

let () =
  let rec all captures nodes blocks = function
    | trace :: placed :: certificates :: rest ->
        let checked =
          try check trace placed certificates with
          | Bad why ->
              Printf.eprintf "%s is refused: %s\n" trace why;
              exit 1
          | Sys_error why ->
              prerr_endline why;
              exit 2
        in
        let sum of_one = List.fold_left (fun sum (capture, _) -> sum + of_one capture) 0 checked in
        all (captures + List.length checked) (nodes + sum (fun it -> it.nodes)) (blocks + sum (fun it -> it.blocks)) rest
    | [] ->
        Printf.printf "%d captures, %d nodes, %d blocks: none aliased, and each minimum is the least memory\n" captures
          nodes blocks
    | _ ->
        prerr_endline "usage: check (TRACE PLACEMENTS CERTIFICATES)...";
        exit 2
  in
  all 0 0 0 (List.tl (Array.to_list Sys.argv))
