(* captures FOLDER COUNT: writes random traces until they have COUNT captures, the same ones each time. Streams fork and
   join, blocks are used on several, some captures have programmatic edges, set-backs, last uses, uses outside, raw nodes. *)

let () =
  let folder = Sys.argv.(1) and wanted = int_of_string Sys.argv.(2) in
  let draw = Random.State.make [| 30 |] in
  let below n = Random.State.int draw n in
  let one_in n = below n = 0 in
  let rec trace number captures =
    if captures < wanted then begin
      let out = open_out (Printf.sprintf "%s/%04d.jsonl" folder number) in
      let line format = Printf.fprintf out (format ^^ "\n") in
      let programmatic = number mod 3 = 1 and set_backs = number mod 4 = 2 and outside = number mod 5 = 3 in
      let raw = number mod 7 = 4 in
      let live = ref [] and blocks = ref 0 in
      let some () = List.nth !live (below (List.length !live)) in
      let count = 1 + below 2 in
      for capture = 0 to count - 1 do
        let streams = 1 + below 6 and nodes = ref 0 in
        line {|{"op":"begin","stream":0,"pool":%d}|} (capture / 2);
        let kernel stream early =
          line {|{"op":"kernel","stream":%d%s}|} stream (if early then {|,"programmatic":true|} else "");
          incr nodes
        in
        kernel 0 false;
        for stream = 1 to streams - 1 do line {|{"op":"wait","stream":%d,"on":0}|} stream done;
        for _ = 1 to 40 + below 160 do
          let stream = below streams in
          match below 20 with
          | 0 | 1 | 2 | 3 | 4 | 5 | 6 -> kernel stream (programmatic && one_in 4)
          | 7 when raw && one_in 4 ->
              let a = below !nodes in
              let b = below !nodes in
              line {|{"op":"node","node":%d,"after":[%s]}|} !nodes
                (if a = b then string_of_int a else Printf.sprintf "%d,%d" a b);
              line {|{"op":"terminals","stream":%d,"nodes":[%d]}|} stream !nodes;
              incr nodes
          | 7 -> kernel stream false
          | 8 | 9 | 10 -> line {|{"op":"wait","stream":%d,"on":%d}|} stream (below streams)
          | 11 | 12 | 13 | 14 ->
              line {|{"op":"alloc","id":%d,"bytes":%d,"stream":%d}|} !blocks (1 + below (if one_in 3 then 9000 else 2000)) stream;
              live := !blocks :: !live;
              incr blocks
          | 15 when !live <> [] ->
              line {|{"op":"use","id":%d,"stream":%d}|} (some ()) (if outside && one_in 4 then 99 else stream)
          | 16 when !live <> [] && one_in 3 -> line {|{"op":"last_use","id":%d,"stream":%d}|} (some ()) stream
          | (16 | 17 | 18) when !live <> [] ->
              let id = some () in
              line {|{"op":"free","id":%d}|} id;
              live := List.filter (( <> ) id) !live
          | 19 when set_backs && one_in 4 -> line {|{"op":"terminals","stream":%d,"nodes":[%d]}|} stream (below !nodes)
          | _ -> ()
        done;
        for stream = 1 to streams - 1 do line {|{"op":"wait","stream":0,"on":%d}|} stream done;
        line {|{"op":"end"}|};
        (* A capture that is made again finds gone what the first attempt freed from before; no trace tells of that. *)
        if programmatic then live := []
      done;
      close_out out;
      trace (number + 1) (captures + count)
    end
  in
  trace 0 0
