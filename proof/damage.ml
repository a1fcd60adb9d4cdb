(* damage (TRACE PLACEMENTS CERTIFICATES)...: damages what is accepted, and asks that it is refused.

   What is sure to be wrong has to be refused. What may still be right (an address that was moved to where nothing lies,
   an edge that others make up for) has to be judged as a plain search of all paths judges it, which knows no clocks. *)

open Checker
open Reader

let draw = Random.State.make [| 31 |]
let below n = Random.State.int draw n
let any l = List.nth l (below (List.length l))

(* Completed-before, and reaching, by a walk from each node, as tables of all pairs. *)

type paths = { count : int; completed : Bytes.t; reached : Bytes.t; early : bool array }

let node v = int_of (Npos v)

let paths policy journal =
  let nodes = List.filter_map (function NewNode (v, deps) -> Some (node v, deps) | _ -> None) journal in
  let named = List.concat_map (fun (v, deps) -> v :: List.map (fun (u, _) -> node u) deps) nodes in
  let looked = List.concat_map (function Terminals (_, l) -> List.map node l | _ -> []) journal in
  let count = 1 + List.fold_left max 0 (named @ looked) in
  let into = Array.make count [] and early = Array.make count false in
  let edge (u, kind) =
    if kind = Programmatic then early.(node u) <- true;
    (node u, proves policy kind)
  in
  List.iter (fun (v, deps) -> into.(v) <- List.map edge deps) nodes;
  let completed = Bytes.make (count * count) ' ' and reached = Bytes.make (count * count) ' ' in
  let rec walk target full v =
    let known = if full then completed else reached in
    if Bytes.get known ((v * count) + target) = ' ' then begin
      Bytes.set known ((v * count) + target) 'x';
      if full then walk target false v;
      List.iter
        (function u, Some Full -> walk target true u | u, Some Start -> walk target full u | _, None -> ())
        into.(v)
    end
  in
  List.iter (fun (v, _) -> walk v false v) nodes;
  { count; completed; reached; early }

let holds paths table x y = Bytes.get table ((x * paths.count) + y) = 'x'

let known policy paths terminals x =
  List.exists
    (fun t ->
      let full = match policy with Deny | Trust -> true | Lag -> false | Auto -> not paths.early.(t) in
      holds paths paths.completed x t || (full && holds paths paths.reached x t))
    terminals

let is_freed a = a.until <> None && not a.outside

let precedes policy paths a b =
  let point = List.map node b.point in
  let needed = a.markers @ a.own_gains @ a.other_gains @ a.point in
  is_freed a && List.for_all (fun x -> known policy paths point (node x)) needed

type placed = Own of life | Other of guest

(* Whether blocks lie as they may, by the definition. *)
let is_placed paths (read : Checker.capture) places =
  let place id = Option.map int_of (PositiveMap.find id places) in
  let users = Hashtbl.create 64 in
  List.iter (fun b -> Hashtbl.replace users b.id (List.map node b.users)) read.lives_of;
  let own = List.map (fun b -> (place b.id, int_of (occupied b), Own b)) read.lives_of in
  let others = List.map (fun it -> (place it.guest_id, int_of it.guest_bytes, Other it)) read.standing_of in
  let in_use a = a.outside || a.users <> [] in
  let ordered a b =
    let later = Hashtbl.find users b.id in
    List.for_all (fun x -> List.for_all (holds paths paths.completed x) later) (Hashtbl.find users a.id)
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
let must_agree ?(only_places = false) what places index capture said =
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
        only_places
        ||
        match Judge.certificate_of judged said with
        | certificate -> check_lower said.policy judged certificate && check_upper judged certificate
        | exception Bad _ -> false
      in
      let by_id = Hashtbl.create 64 in
      List.iter (fun b -> Hashtbl.replace by_id b.id b) read.lives_of;
      let block id = Hashtbl.find by_id (name id) in
      let before a b = precedes said.policy paths (block a) (block b) in
      let is_wrong () =
        (not only_places)
        && List.exists (fun (from, to_, _) -> not (before from to_)) said.passed
        || (not only_places)
           && List.exists (fun (a, _) -> List.exists (fun (b, _) -> a <> b && before a b) said.antichain) said.antichain
      in
      if least && is_wrong () then wrong "%s: a minimum is accepted though a search of all paths refutes it" what;
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
    let agree what places = must_agree ~only_places:true what places index capture said in
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
