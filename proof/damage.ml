(* damage (TRACE PLACEMENTS CERTIFICATES)...: damages what is accepted, and asks that it is refused.

   What is sure to be wrong has to be refused. What may still be right (an address that was moved to where nothing lies,
   an edge that others make up for) has to be judged as a plain search of all paths judges it, which knows no clocks. *)

open Checker
open Reader

let draw = Random.State.make [| 31 |]
let below n = Random.State.int draw n
let any l = List.nth l (below (List.length l))

(* Completed-before, and reaching, by walks from each node, as lists of all that is behind it. *)

type paths = { completed : (positive * positive, unit) Hashtbl.t; reached : (positive * positive, unit) Hashtbl.t }

let paths policy journal =
  let into = Hashtbl.create 64 in
  List.iter (function NewNode (v, deps) -> Hashtbl.replace into v deps | _ -> ()) journal;
  let completed = Hashtbl.create 1024 and reached = Hashtbl.create 1024 in
  let rec walk target full v =
    let known = if full then completed else reached in
    if not (Hashtbl.mem known (v, target)) then begin
      Hashtbl.replace known (v, target) ();
      if full then walk target false v;
      List.iter
        (fun (u, kind) ->
          match proves policy kind with
          | Some Full -> walk target true u
          | Some Start -> walk target full u
          | None -> ())
        (Option.value (Hashtbl.find_opt into v) ~default:[])
    end
  in
  Hashtbl.iter (fun v _ -> walk v false v) into;
  { completed; reached }

let is_early journal t =
  List.exists
    (function NewNode (_, deps) -> List.exists (fun (u, kind) -> u = t && kind = Programmatic) deps | _ -> false)
    journal

let known policy journal paths terminals x =
  List.exists
    (fun t ->
      let full =
        match policy with Deny | Trust -> true | Lag -> false | Auto -> not (is_early journal t)
      in
      Hashtbl.mem paths.completed (x, t) || (full && Hashtbl.mem paths.reached (x, t)))
    terminals

let is_freed a = a.until <> None && not a.outside

let precedes policy journal paths a b =
  is_freed a
  && List.for_all (known policy journal paths b.point) (a.markers @ a.own_gains @ a.other_gains @ a.point)

type placed = Own of life | Other of guest

(* Whether blocks lie as they may, by the definition. *)
let is_placed paths (read : Checker.capture) places =
  let place id = Option.map int_of (PositiveMap.find id places) in
  let own = List.map (fun b -> (place b.id, int_of (occupied b), Own b)) read.lives_of in
  let others = List.map (fun it -> (place it.guest_id, int_of it.guest_bytes, Other it)) read.standing_of in
  let in_use a = a.outside || a.users <> [] in
  let ordered a b =
    List.for_all (fun x -> List.for_all (fun y -> Hashtbl.mem paths.completed (x, y)) b.users) a.users
  in
  let follows a b =
    match a.until with
    | Some t -> int_of t <= int_of b.from && ((not (in_use a)) || (not (in_use b)) || (is_freed a && ordered a b))
    | None -> false
  in
  let pair (a, a_bytes, a_block) (b, b_bytes, b_block) =
    match (a, b) with
    | Some a, Some b -> (
        a + a_bytes <= b || b + b_bytes <= a
        ||
        match (a_block, b_block) with
        | Own one, Own other -> follows one other || follows other one
        | Other _, Other _ -> true
        | Own one, Other it | Other it, Own one -> (
            match (it.settled, one.until) with
            | Some t, _ when int_of t <= int_of one.from -> true
            | settled, Some u -> int_of u <= int_of it.entered && (settled <> None || not (in_use one))
            | _ -> false))
    | _ -> false
  in
  let rec all = function [] -> true | one :: rest -> List.for_all (pair one) rest && all rest in
  all (own @ others)

let tried = ref 0
let refused = ref 0

let wrong format = Printf.ksprintf (fun text -> prerr_endline text; exit 1) format

(* Something that is sure to be wrong. *)
let must_refuse what places index capture said =
  incr tried;
  match Judge.capture places index capture said with
  | () -> wrong "accepted though damaged: %s" what
  | exception Bad _ -> incr refused

(* Something that may be right. *)
let must_agree what places index capture said =
  incr tried;
  let read = read capture.journal in
  let paths = paths said.policy capture.journal in
  match judge said.policy capture.journal with
  | None -> incr refused
  | Some judged ->
      let placed = check_places judged places in
      if placed <> is_placed paths read places then
        wrong "%s: the check says %b of the places, a search of all paths says otherwise" what placed;
      let least =
        match Judge.certificate_of judged said with
        | certificate -> check_lower said.policy judged certificate && check_upper judged certificate
        | exception Bad _ -> false
      in
      let block id = List.find (fun b -> b.id = name id) read.lives_of in
      let before a b = precedes said.policy capture.journal paths (block a) (block b) in
      let is_wrong =
        List.exists (fun (from, to_, _) -> not (before from to_)) said.passed
        || List.exists (fun (a, _) -> List.exists (fun (b, _) -> a <> b && before a b) said.antichain) said.antichain
      in
      if least && is_wrong then wrong "%s: a minimum is accepted though a search of all paths refutes it" what;
      if not (placed && least) then incr refused;
      ignore index

let without n l = List.filteri (fun i _ -> i <> n) l
let replace n value l = List.mapi (fun i old -> if i = n then value else old) l

let damage_certificate places index capture said =
  let refuse what said = must_refuse what places index capture said in
  List.iter
    (fun by -> if said.least + by >= 0 then refuse "the minimum" { said with least = said.least + by })
    [ 1; -1; 512; -512 ];
  refuse "the count of nodes" { said with said_nodes = said.said_nodes + 1 };
  refuse "the count of blocks" { said with said_blocks = said.said_blocks + 1 };
  if said.antichain <> [] then begin
    let n = below (List.length said.antichain) in
    let id, bytes = List.nth said.antichain n in
    refuse "a block of the antichain left out" { said with antichain = without n said.antichain };
    refuse "a block of the antichain twice" { said with antichain = (id, bytes) :: said.antichain };
    refuse "a block's bytes" { said with antichain = replace n (id, bytes + 512) said.antichain };
    refuse "a block that is none" { said with antichain = replace n (1_000_000, bytes) said.antichain };
    refuse "a larger minimum with the same blocks"
      { said with antichain = replace n (id, bytes + 512) said.antichain; least = said.least + 512 };
    refuse "a smaller antichain, with its own sum"
      { said with antichain = without n said.antichain; least = said.least - bytes };
    refuse "no thresholds" { said with at = [] };
    let n = below (List.length said.at) in
    let stream, nodes = List.nth said.at n in
    refuse "a threshold at a node that is none" { said with at = replace n (stream, 1_000_000 :: nodes) said.at };
    if List.length (List.filter (fun (other, _) -> other = stream) said.at) = 1 then begin
      refuse "a threshold left out" { said with at = without n said.at };
      refuse "a threshold of another stream" { said with at = replace n (stream + 1_000, nodes) said.at }
    end
  end;
  if said.passed <> [] then begin
    let n = below (List.length said.passed) in
    let from, to_, bytes = List.nth said.passed n in
    let cover what it = refuse what { said with passed = it } in
    cover "memory that is not passed on" (without n said.passed);
    cover "memory passed on twice" ((from, to_, bytes) :: said.passed);
    cover "more memory passed on" (replace n (from, to_, bytes + 512) said.passed);
    if bytes > 512 then cover "less memory passed on" (replace n (from, to_, bytes - 512) said.passed);
    cover "memory passed back" (replace n (to_, from, bytes) said.passed);
    cover "memory passed to itself" (replace n (from, from, bytes) said.passed);
    cover "memory of no block" (replace n (1_000_000, to_, bytes) said.passed);
    let other, _, _ = any said.passed in
    let moved = { said with passed = replace n (other, to_, bytes) said.passed } in
    must_agree "memory of another block" places index capture moved
  end

let damage_places places index capture said =
  let read = read capture.journal in
  if read.lives_of <> [] then begin
    let id = (any read.lives_of).id and other = (any read.lives_of).id in
    let at id = Option.get (PositiveMap.find id places) in
    let moved id address = PositiveMap.add id address places in
    let agree what places = must_agree what places index capture said in
    must_refuse "a block without a place" (PositiveMap.remove id places) index capture said;
    agree "addresses swapped" (PositiveMap.add other (at id) (moved id (at other)));
    agree "a block where another lies" (moved id (at other));
    List.iter
      (fun by -> agree "an address moved" (moved id (number (max 0 (int_of (at id) + by)))))
      [ 1; -1; 512; -512; 4096; -4096 ]
  end

let damage_journal places index capture said =
  let length = List.length capture.journal in
  let agree what journal = must_agree what places index { capture with journal } said in
  for _ = 1 to 6 do
    let n = below length in
    (match List.nth capture.journal n with
    | NewNode (v, deps) when deps <> [] ->
        let d = below (List.length deps) in
        let u, _ = List.nth deps d in
        let with_deps deps = replace n (NewNode (v, deps)) capture.journal in
        agree "a missing edge" (with_deps (without d deps));
        agree "an edge that proves less" (with_deps (replace d (u, Programmatic) deps));
        agree "an edge from a later node" (with_deps (replace d (v, FullEdge) deps))
    | NewNode _ -> ()
    | Terminals (s, nodes) when nodes <> [] ->
        let d = below (List.length nodes) in
        agree "a missing marker" (replace n (Terminals (s, without d nodes)) capture.journal);
        agree "a missing look" (without n capture.journal)
    | Terminals _ -> ()
    | _ -> agree "a missing entry" (without n capture.journal));
    let m = below length in
    let one = List.nth capture.journal n and other = List.nth capture.journal m in
    agree "entries swapped" (replace m one (replace n other capture.journal))
  done

let () =
  let rec all files =
    match files with
    | trace :: placed :: certificates :: rest ->
        let places = placements placed in
        List.iteri
          (fun index (capture, said) ->
            let places = places in
            Judge.capture places index capture said;
            must_agree "nothing" places index capture said;
            damage_certificate places index capture said;
            damage_places places index capture said;
            damage_journal places index capture said)
          (List.combine (captures (lines trace operation)) (lines certificates certificate));
        all rest
    | [] -> Printf.printf "%d times damaged, %d times refused, the rest true as before\n" !tried !refused
    | _ -> prerr_endline "usage: damage (TRACE PLACEMENTS CERTIFICATES)..."; exit 2
  in
  try all (List.tl (Array.to_list Sys.argv)) with Bad why -> wrong "what is not damaged is refused: %s" why
