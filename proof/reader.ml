(* Reads what `regraph replay` has read and written: the trace, where blocks were placed, and the certificates.

   Nothing here is proven. It turns each line into what the check of checker.ml is given, and refuses what it does not
   know, so that no field is passed over. *)

open Checker

exception Bad of string

let bad format = Printf.ksprintf (fun text -> raise (Bad text)) format

(* JSON, of what is needed: no fractions. Escapes stay as they are written: only labels have any. *)

type json = Int of int | Bool of bool | Text of string | List of json list | Object of (string * json) list

let parse text =
  let at = ref 0 in
  let peek () = if !at < String.length text then text.[!at] else '\000' in
  let skip () = while peek () = ' ' || peek () = '\t' || peek () = '\r' do incr at done in
  let expect c = if peek () = c then incr at else bad "expected `%c` in column %d" c (!at + 1) in
  let word name value =
    String.iter expect name;
    value
  in
  let text_ () =
    expect '"';
    let from = !at in
    while peek () <> '"' do
      if peek () = '\\' then incr at;
      if peek () < ' ' then bad "no end of a text in column %d" (!at + 1);
      incr at
    done;
    incr at;
    String.sub text from (!at - from - 1)
  in
  let number () =
    let from = !at in
    while peek () >= '0' && peek () <= '9' do incr at done;
    let digits = String.sub text from (!at - from) in
    match int_of_string_opt digits with
    | Some value when (String.length digits = 1 || digits.[0] <> '0') && value >= 0 -> value
    | _ -> bad "a number that is none, or too large, in column %d" (from + 1)
  in
  let many close one =
    incr at;
    skip ();
    if peek () = close then (incr at; [])
    else
      let rec rest found =
        let found = one () :: found in
        skip ();
        if peek () = ',' then (incr at; skip (); rest found) else (expect close; List.rev found)
      in
      rest []
  in
  let rec value () =
    skip ();
    match peek () with
    | '{' ->
        let field () =
          let name = text_ () in
          skip (); expect ':';
          (name, value ())
        in
        let fields = many '}' field in
        let names = List.sort_uniq compare (List.map fst fields) in
        if List.length names < List.length fields then bad "a field twice";
        Object fields
    | '[' -> List (many ']' value)
    | '"' -> Text (text_ ())
    | 't' -> word "true" (Bool true)
    | 'f' -> word "false" (Bool false)
    | '0' .. '9' -> Int (number ())
    | _ -> bad "no value in column %d" (!at + 1)
  in
  let read = value () in
  skip ();
  if !at < String.length text then bad "more than a value in column %d" (!at + 1);
  read

(* The fields of an object, each taken once; what is left over is refused. *)

type fields = { mutable left : (string * json) list }

let fields = function Object left -> { left } | _ -> bad "expected an object"

let take_opt it name =
  let found = List.assoc_opt name it.left in
  it.left <- List.remove_assoc name it.left;
  found

let take it name = match take_opt it name with Some value -> value | None -> bad "no field `%s`" name
let int = function Int value -> value | _ -> bad "expected a number"
let text = function Text value -> value | _ -> bad "expected a text"
let list of_one = function List values -> List.map of_one values | _ -> bad "expected a list"
let flag = function Bool value -> value | _ -> bad "expected true or false"
let ints_opt it name = match take_opt it name with Some value -> list int value | None -> []
let flag_opt it name = match take_opt it name with Some value -> flag value | None -> false
let finish it = match it.left with [] -> () | (name, _) :: _ -> bad "an unknown field `%s`" name

let lines path of_line =
  let input = open_in_bin path in
  let rec read line found =
    match input_line input with
    | exception End_of_file -> List.rev found
    | text when String.trim text = "" -> read (line + 1) found
    | text -> (
        match of_line (fields (parse text)) with
        | value -> read (line + 1) (value :: found)
        | exception Bad why -> bad "%s, line %d: %s" path line why)
  in
  let found = read 1 [] in
  close_in input;
  found

(* Numbers as the check has them. A block, stream or node n of a file is n + 1 there. *)

let rec positive n = if n = 1 then XH else if n land 1 = 0 then XO (positive (n / 2)) else XI (positive (n / 2))
let number n = if n = 0 then N0 else Npos (positive n)
let name n = positive (n + 1)
let int_of = function
  | N0 -> 0
  | Npos p ->
      let rec value = function XH -> 1 | XO p -> 2 * value p | XI p -> (2 * value p) + 1 in
      value p

(* Traces *)

type operation =
  | Begin of int * int
  | Kernel of int * bool
  | Wait of int * int
  | RawNode of int * int list * int list
  | RawTerminals of int * int list
  | Alloc of int * int * int
  | UseOn of int * int
  | LastUseOn of int * int
  | FreeOf of int
  | End
  | Remark

(* The first line says which format the file has. *)
let version it =
  match (text (take it "format"), int (take it "version")) with
  | "regraph trace", 1 -> Remark
  | format, version -> bad "`%s` of version %d" format version

let operation it =
  if List.mem_assoc "format" it.left then (let read = version it in finish it; read) else
  let get field = int (take it field) in
  let read =
    match text (take it "op") with
    | "begin" ->
        let stream = get "stream" in
        Begin (stream, get "pool")
    | "kernel" ->
        ignore (ints_opt it "uses");
        let programmatic = flag_opt it "programmatic" in
        Kernel (get "stream", programmatic)
    | "wait" ->
        let stream = get "stream" in
        Wait (stream, get "on")
    | "node" ->
        ignore (ints_opt it "uses");
        ignore (take_opt it "kind");
        let programmatic = ints_opt it "programmatic" in
        let after = list int (take it "after") in
        RawNode (get "node", after, programmatic)
    | "terminals" ->
        let nodes = list int (take it "nodes") in
        RawTerminals (get "stream", nodes)
    | "alloc" ->
        let id = get "id" in
        let bytes = get "bytes" in
        Alloc (id, bytes, get "stream")
    | "use" ->
        let id = get "id" in
        UseOn (id, get "stream")
    | "last_use" ->
        let id = get "id" in
        LastUseOn (id, get "stream")
    | "free" -> FreeOf (get "id")
    | "end" -> End
    (* What is said of blocks and nodes to people: nothing depends on it. *)
    | "stack" ->
        ignore (take it "frames");
        ignore (get "stack");
        Remark
    | "label" ->
        List.iter (fun field -> ignore (take_opt it field)) [ "block"; "node"; "name"; "stack" ];
        Remark
    | other -> bad "an unknown operation `%s`" other
  in
  finish it;
  read

let streams = function
  | Begin (s, _) | Kernel (s, _) | RawTerminals (s, _) | Alloc (_, _, s) | UseOn (_, s) | LastUseOn (_, s) -> [ s ]
  | Wait (s, on) -> [ s; on ]
  | RawNode _ | FreeOf _ | End | Remark -> []

(* One capture: its journal, and how many nodes and blocks it has. *)

type capture = { journal : entry list; nodes : int; blocks : int }

let until_end operations =
  let rec read found = function
    | [] -> bad "a capture has no end"
    | End :: rest -> (List.rev found, rest)
    | it :: rest -> read (it :: found) rest
  in
  read [] operations

(* The streams that a capture has: those that hold work enter at once, others where they wait for one that is inside. *)
let entrances origin operations =
  let at_once = Hashtbl.create 8 in
  Hashtbl.replace at_once origin true;
  let add stream once = if not (Hashtbl.mem at_once stream) then Hashtbl.replace at_once stream once in
  List.iter
    (function
      | Kernel (s, _) | RawTerminals (s, _) -> add s true
      | Wait (s, on) -> if Hashtbl.mem at_once on then add s false
      | _ -> ())
    operations;
  at_once

(* The blocks that live, with what they occupy and the streams that use them. *)
let lives_elsewhere elsewhere id bytes s = Hashtbl.replace elsewhere id ((bytes + 511) / 512 * 512, [ s ])

let used_elsewhere elsewhere id s =
  match Hashtbl.find_opt elsewhere id with
  | Some (bytes, streams) -> Hashtbl.replace elsewhere id (bytes, s :: streams)
  | None -> ()

(* [elsewhere]: the blocks that live when the capture begins. It is kept up to date. One that is freed while none of its
   streams is in the capture is settled: the replay waits for what uses it outside. *)
let capture origin operations elsewhere =
  let at_once = entrances origin operations in
  let inside = Hashtbl.create 8 in
  Hashtbl.replace inside origin ();
  let is_inside s = Hashtbl.mem inside s in
  let journal = ref [] in
  let push entry = journal := entry :: !journal in
  let terminals = Hashtbl.create 8 in
  let now s = Option.value (Hashtbl.find_opt terminals s) ~default:[] in
  let move s nodes =
    Hashtbl.replace terminals s nodes;
    push (Terminals (name s, List.map name nodes))
  in
  let look s = if not (Hashtbl.mem terminals s) then move s [] in
  let nodes = ref 0 and blocks = ref 0 in
  let add after programmatic =
    let kind u = if programmatic u then Programmatic else FullEdge in
    push (NewNode (name !nodes, List.map (fun u -> (name u, kind u)) after));
    incr nodes
  in
  (* By block: its streams, with whether the last use on each was recorded. *)
  let live = Hashtbl.create 64 in
  let close id uses =
    Hashtbl.iter (fun s last -> if not last then if is_inside s then look s else push (Outside (name id))) uses
  in
  let stands id = push (Standing (name id, number (fst (Hashtbl.find elsewhere id)))) in
  Hashtbl.iter (fun id _ -> stands id) elsewhere;
  let run it =
    List.iter
      (fun s -> if Hashtbl.find_opt at_once s = Some true && not (is_inside s) then Hashtbl.replace inside s ())
      (streams it);
    match it with
    | Begin _ -> bad "a capture begins in another"
    | End | Remark -> ()
    | Kernel (s, programmatic) ->
        let node = !nodes in
        add (now s) (fun _ -> programmatic);
        move s [ node ]
    | RawNode (node, after, programmatic) ->
        if node <> !nodes then bad "expected node %d, found %d" !nodes node;
        add after (fun u -> List.mem u programmatic)
    | Wait (s, on) ->
        if Hashtbl.mem at_once s && is_inside on then begin
          Hashtbl.replace inside s ();
          let own = now s in
          move s (own @ List.filter (fun u -> not (List.mem u own)) (now on))
        end
    | RawTerminals (s, nodes) ->
        (* The replay looks at the stream before it sets it back, and after. *)
        move s (now s);
        move s nodes
    | Alloc (id, bytes, s) ->
        lives_elsewhere elsewhere id bytes s;
        if is_inside s then begin
          look s;
          incr blocks;
          let uses = Hashtbl.create 2 in
          Hashtbl.replace uses s false;
          Hashtbl.replace live id uses;
          push (Allocate (name id, name s, number bytes))
        end
        else stands id
    | UseOn (id, s) -> (
        used_elsewhere elsewhere id s;
        match Hashtbl.find_opt live id with
        | None -> ()
        | Some uses ->
            Hashtbl.replace uses s false;
            push (Use (name id, name s)))
    | LastUseOn (id, s) -> (
        used_elsewhere elsewhere id s;
        match Hashtbl.find_opt live id with
        | None -> ()
        | Some uses ->
            let last = is_inside s in
            Hashtbl.replace uses s last;
            if last then (look s; push (LastUse (name id, name s))) else push (Use (name id, name s)))
    | FreeOf id -> (
        let streams = match Hashtbl.find_opt elsewhere id with Some (_, streams) -> streams | None -> [] in
        Hashtbl.remove elsewhere id;
        match Hashtbl.find_opt live id with
        | None -> if not (List.exists is_inside streams) then push (Settled (name id))
        | Some uses ->
            close id uses;
            Hashtbl.remove live id;
            push (Free (name id)))
  in
  List.iter run operations;
  Hashtbl.iter close live;
  (* The engine looks at every stream before the capture ends. *)
  Hashtbl.iter (fun s nodes -> if is_inside s then push (Terminals (name s, List.map name nodes))) terminals;
  { journal = List.rev !journal; nodes = !nodes; blocks = !blocks }

let captures operations =
  let operations = List.filter (( <> ) Remark) operations in
  let elsewhere = Hashtbl.create 64 in
  let rec read found = function
    | [] -> List.rev found
    | Begin (origin, _) :: rest ->
        let own, rest = until_end rest in
        read (capture origin own elsewhere :: found) rest
    | Alloc (id, bytes, s) :: rest ->
        lives_elsewhere elsewhere id bytes s;
        read found rest
    | FreeOf id :: rest ->
        Hashtbl.remove elsewhere id;
        read found rest
    | (UseOn (id, s) | LastUseOn (id, s)) :: rest ->
        used_elsewhere elsewhere id s;
        read found rest
    | _ -> bad "an operation outside a capture that belongs in one"
  in
  read [] operations

(* Placements *)

let placements path =
  let one it =
    let id = int (take it "id") in
    let address = int (take it "address") in
    ignore (int (take it "bytes"));
    finish it;
    (id, address)
  in
  let add map (id, address) =
    if PositiveMap.find (name id) map <> None then bad "%s: block %d has two places" path id;
    PositiveMap.add (name id) (number address) map
  in
  List.fold_left add PositiveMap.empty (lines path one)

(* Certificates *)

type said = {
  of_capture : int;
  said_nodes : int;
  said_blocks : int;
  policy : policy;
  least : int;
  antichain : (int * int) list;
  at : (int * int list) list;
  passed : (int * int * int) list;
}

let certificate it =
  if text (take it "format") <> "regraph certificate" then bad "expected a `regraph certificate`";
  if int (take it "version") <> 2 then bad "expected version 2";
  let get field = int (take it field) in
  let of_capture = get "capture" in
  let said_nodes = get "nodes" in
  let said_blocks = get "blocks" in
  let policy =
    match text (take it "programmatic") with
    | "auto" -> Auto
    | "deny" -> Deny
    | "lag" -> Lag
    | "trust" -> Trust
    | other -> bad "an unknown policy `%s`" other
  in
  let least = get "minimum_bytes" in
  let each of_one value =
    let one value =
      let it = fields value in
      let read = of_one it in
      finish it;
      read
    in
    list one value
  in
  let pair it = (int (take it "id"), int (take it "bytes")) in
  let threshold it = (int (take it "stream"), list int (take it "nodes")) in
  let passes it = (int (take it "from"), int (take it "to"), int (take it "bytes")) in
  let antichain = each pair (take it "antichain") in
  let at = each threshold (take it "thresholds") in
  let passed = each passes (take it "cover") in
  finish it;
  { of_capture; said_nodes; said_blocks; policy; least; antichain; at; passed }

(* The chains of a cover: each block passes on pieces of what it has, once all have passed on to it. A piece that is passed
   on in part becomes two. Blocks that need no memory have none. *)
let chains judged passed =
  let gives = Hashtbl.create 64 and had = Hashtbl.create 64 in
  List.iter
    (fun (from, to_, bytes) ->
      if PositiveMap.find (name from) judged.by_id = None || PositiveMap.find (name to_) judged.by_id = None then
        bad "the cover names a block that the capture does not have";
      Hashtbl.add gives (name to_) (from, bytes))
    passed;
  let take from bytes =
    let rec split bytes = function
      | rest when bytes = 0 -> ([], rest)
      | [] -> bad "the cover passes on more than block %d has" from
      | (some, path) :: rest when some <= bytes ->
          let taken, left = split (bytes - some) rest in
          ((some, path) :: taken, left)
      | (some, path) :: rest -> ([ (bytes, path) ], (some - bytes, path) :: rest)
    in
    let taken, left = split bytes (Option.value (Hashtbl.find_opt had (name from)) ~default:[]) in
    Hashtbl.replace had (name from) left;
    taken
  in
  let works = Hashtbl.create 64 and state = Hashtbl.create 64 in
  List.iter (fun card -> if works_b card then Hashtbl.replace works card.whose.id card) judged.cards_of;
  let rec fill id =
    match Hashtbl.find_opt state id with
    | Some true -> ()
    | Some false -> bad "the cover passes memory round in a circle"
    | None ->
        let card = match Hashtbl.find_opt works id with Some card -> card | None -> bad "the cover names a block that needs none" in
        Hashtbl.replace state id false;
        let into = Hashtbl.find_all gives id in
        List.iter (fun (from, _) -> fill (name from)) into;
        let got = List.concat_map (fun (from, bytes) -> take from bytes) into in
        let fresh = int_of (occupied card.whose) - List.fold_left (fun sum (some, _) -> sum + some) 0 got in
        if fresh < 0 then bad "the cover passes more to a block than it occupies";
        let pieces = if fresh > 0 then (fresh, []) :: got else got in
        Hashtbl.replace had id (List.map (fun (some, path) -> (some, id :: path)) pieces);
        Hashtbl.replace state id true
  in
  List.iter (fun card -> if works_b card then fill card.whose.id) judged.cards_of;
  Hashtbl.iter (fun id _ -> if not (Hashtbl.mem works id) then bad "the cover names a block that needs none") gives;
  Hashtbl.fold (fun _ pieces all -> List.rev_append pieces all) had []
  |> List.map (fun (some, path) -> (number some, List.rev path))
