(** What a host did while it captured, and what follows from it for each block: who may have used it, what marks its
    free, what was known at its allocation.

    The words are those of design/safety.md and design/minimum.md. What stands here is a definition: it is to be read,
    not trusted. The lemmas at the end say in terms of paths what the functions compute by clocks. *)

From Coq Require Import List Arith NArith PArith Lia Bool FMapPositive.
From Regraph Require Import Order.
Import ListNotations.
Open Scope N_scope.

Definition stream := positive.
Definition block := positive.

(** A capture's journal, in the order of the host's calls. *)
Inductive entry :=
(** A node, with the edges that lead to it. *)
| NewNode (v : node) (deps : list (node * kind))
(** A look at a stream: its next launch will depend on these nodes. *)
| Terminals (s : stream) (nodes : list node)
(** A block is handed out to a stream of the capture. *)
| Allocate (b : block) (s : stream) (bytes : N)
(** A block from elsewhere stands in the pool while the capture is under way. *)
| Standing (b : block) (bytes : N)
(** It is gone, and all that used it has completed. *)
| Settled (b : block)
(** A stream is recorded as a user. *)
| Use (b : block) (s : stream)
(** What the stream holds so far includes its last use of the block. *)
| LastUse (b : block) (s : stream)
(** Something outside the capture uses the block. *)
| Outside (b : block)
(** The block is freed. *)
| Free (b : block).

Definition graph_of (journal : list entry) : graph :=
  flat_map (fun e => match e with NewNode v deps => [(v, deps)] | _ => [] end) journal.

(** ** Looks *)

(** A node that a stream gained: that lies behind its terminals at a look, and lay behind none that it had before. *)
Record gain := Gain {
  gained : node;
  (** The look, by its number in the journal, and the look before it at this stream. *)
  at_look : N;
  since_look : N;
  (** The first look at any stream that had the node behind it. *)
  first_seen : N;
  (** The last broken step of the stream up to this one, by the look that ended it, and what the stream waited for
      then; nothing if the step is this one. *)
  last_break : N;
  break_point : list node
}.

Record sight := Sight {
  now : list node;
  looked : N;
  behind : map unit;
  (** The latest first. *)
  gains : list gain;
  broken_at : N;
  broken_now : list node
}.

Definition no_sight : sight := Sight [] 0 (Map.empty _) [] 0 [].

Definition sight_of (m : map sight) (s : stream) : sight :=
  match Map.find s m with Some it => it | None => no_sight end.

(** ** Blocks *)

(** A live block. Of each stream that uses it: when its last use was recorded, and its terminals then. *)
Record live := Live {
  own : stream;
  size : N;
  allocated : N;
  waited : list node;
  users_on : map (option (N * list node));
  used_outside : bool
}.

(** What is known of a block once its life is over, or the capture. *)
Record life := Life {
  id : block;
  on : stream;
  bytes : N;
  (** Its allocation and its free, by their numbers in the journal. *)
  from : N;
  until : option N;
  (** The allocation point: the terminals of its stream at its allocation. *)
  point : list node;
  (** The terminals of each of its streams at its free, or at its last use there. *)
  markers : list node;
  (** What its own stream gained in its life, and what its other streams gained. *)
  own_gains : list node;
  other_gains : list node;
  (** The possible users. *)
  users : list node;
  outside : bool
}.

(** A block from elsewhere: since when it stands in the pool, and when it was settled. *)
Record guest := Guest { guest_id : block; guest_bytes : N; entered : N; settled : option N }.

Record state := State {
  time : N;
  seen : map N;
  sights : map sight;
  lives : map live;
  standing : map guest;
  over : list life;
  (** False once something was not as a journal has it. *)
  sound : bool
}.

Section Reading.
  (** The graph's edges, and its clocks by edges of any kind. *)
  Variable deps_of : map (list (node * kind)).
  Variable any : clocks.

  (** Whether [u] comes before [v], or is it, by edges of any kind. *)
  Definition behind_any (u v : node) : bool :=
    match Map.find u (infos any), Map.find v (infos any) with
    | Some i, Some j => position i <=? get (chain i) (reached j)
    | _, _ => false
    end.

  (** Whether a node comes after all of some others. *)
  Definition after_all (nodes : list node) (v : node) : bool :=
    forallb (fun u => negb (Pos.eqb u v) && behind_any u v) nodes.

  (** The nodes behind some others that are not marked yet, and the marks afterwards: a walk along the edges, backwards.
      It is done when the stack is empty; [2 ^ depth] steps are made at most. *)
  Definition walking := (list node * map unit * list node)%type.

  Definition walk_step (w : walking) : walking :=
    match w with
    | ([], marks, found) => w
    | (v :: stack, marks, found) =>
        if Map.mem v marks then (stack, marks, found)
        else
          let deps := match Map.find v deps_of with Some deps => deps | None => [] end in
          (List.map fst deps ++ stack, Map.add v tt marks, v :: found)
    end.

  Fixpoint walk (depth : nat) (w : walking) : walking :=
    match w with
    | ([], _, _) => w
    | _ => match depth with
           | O => walk_step w
           | S depth => walk depth (walk depth w)
           end
    end.

  Definition is_in (v : node) (l : list node) : bool := existsb (Pos.eqb v) l.
  Definition all_in (a b : list node) : bool := forallb (fun v => is_in v b) a.

  (** A step from one look at a stream to the next is whole if all that the stream launched in it comes after all that it
      waited for before: it still waits for that; or it gained a node that depends on all of that; or it gained nothing
      of its own, and all of that lies behind what it waits for now. Else the stream was set back, and the step is
      broken. *)
  Definition is_whole (before now fresh : list node) : bool :=
    let depends v := match Map.find v deps_of with
                     | Some deps => all_in before (List.map fst deps) | None => false end in
    all_in before now
    || existsb depends fresh
    || negb (existsb (fun v => is_in v fresh) now) && forallb (fun u => existsb (behind_any u) now) before.

  Definition look (st : state) (s : stream) (nodes : list node) : state :=
    let it := sight_of (sights st) s in
    match walk 64 (nodes, behind it, []) with
    | (stack, marks, fresh) =>
        let t := time st in
        let whole := is_whole (now it) nodes fresh in
        let broke := if whole then broken_at it else t in
        let seen' := fold_left (fun m v => if Map.mem v m then m else Map.add v t m) fresh (seen st) in
        let gain v := Gain v t (looked it) (match Map.find v seen' with Some first => first | None => t end)
                           broke (if whole then broken_now it else []) in
        let it' := Sight nodes t marks (List.map gain fresh ++ gains it) broke
                         (if whole then broken_now it else nodes) in
        State t seen' (Map.add s it' (sights st)) (lives st) (standing st) (over st)
              (sound st && match stack with [] => true | _ => false end)
    end.

  (** What a stream gained after one look and up to another. *)
  Fixpoint gained_in (after upto : N) (l : list gain) : list gain :=
    match l with
    | [] => []
    | g :: l => if at_look g <=? after then []
                else if at_look g <=? upto then g :: gained_in after upto l else gained_in after upto l
    end.

  (** Whether a node that a stream of the block gained in its life is a possible user: no look at any stream saw it
      before the block was allocated, nor before the step began that gained it, and it comes after the allocation
      point; on the block's own stream, once that was set back, after what it waited for then. *)
  Definition may_use (b : live) (s : stream) (g : gain) : bool :=
    let p := if Pos.eqb s (own b) && (allocated b <? last_break g) then break_point g else waited b in
    (N.max (since_look g) (allocated b) <? first_seen g) && after_all p (gained g).

  (** A block that is live at the end may also be used by what a stream has not gained at its last look, and that comes
      after all that it waited for then. *)
  Definition may_use_later (st : state) (b : live) (s : stream) (v : node) : bool :=
    let it := sight_of (sights st) s in
    let p := if Pos.eqb s (own b) && (allocated b <? broken_at it) then broken_now it else waited b in
    negb (Map.mem v (behind it))
    && match Map.find v (seen st) with Some first => N.max (looked it) (allocated b) <? first | None => true end
    && after_all p v && after_all (now it) v.

  Definition end_of (st : state) (b : block) (it : live) (freed : option N) (nodes : list node) : life :=
    let streams := Map.elements (users_on it) in
    let last (used : stream * option (N * list node)) := match snd used with Some (t, _) => t | None => time st end in
    let gains_on used := gained_in (allocated it) (last used) (gains (sight_of (sights st) (fst used))) in
    let mark used := match snd used with Some (_, m) => m | None => now (sight_of (sights st) (fst used)) end in
    let is_own used := Pos.eqb (fst used) (own it) in
    let gains_of which := flat_map (fun used => List.map gained (gains_on used)) (filter which streams) in
    let later used :=
      match freed, snd used with
      | None, None => filter (may_use_later st it (fst used)) nodes
      | _, _ => []
      end in
    Life b (own it) (size it) (allocated it) freed (waited it)
         (flat_map mark streams) (gains_of is_own) (gains_of (fun used => negb (is_own used)))
         (flat_map (fun used => List.map gained (filter (may_use it (fst used)) (gains_on used)) ++ later used) streams)
         (used_outside it).

  (** Whether each stream of a block was looked at, or something outside uses it. *)
  Definition rests_on_looks (st : state) (it : live) : bool :=
    used_outside it || forallb (fun used => Map.mem (fst used) (sights st)) (Map.elements (users_on it)).

  Definition with_live (st : state) (b : block) (f : live -> live) : state :=
    match Map.find b (lives st) with
    | Some it => State (time st) (seen st) (sights st) (Map.add b (f it) (lives st)) (standing st) (over st) (sound st)
    | None => State (time st) (seen st) (sights st) (lives st) (standing st) (over st) false
    end.

  Definition with_use (st : state) (b : block) (s : stream) (last : option (N * list node)) : state :=
    with_live st b (fun it =>
      Live (own it) (size it) (allocated it) (waited it) (Map.add s last (users_on it)) (used_outside it)).

  Definition step (before : state) (e : entry) : state :=
    let st := State (N.succ (time before)) (seen before) (sights before) (lives before) (standing before)
                    (over before) (sound before) in
    match e with
    | NewNode _ _ => st
    | Terminals s nodes => look st s nodes
    | Allocate b s bytes =>
        let it := Live s bytes (time st) (now (sight_of (sights st) s)) (Map.add s None (Map.empty _)) false in
        State (time st) (seen st) (sights st) (Map.add b it (lives st)) (standing st) (over st)
              (sound st && Map.mem s (sights st) && negb (Map.mem b (lives st)))
    | Standing b bytes =>
        State (time st) (seen st) (sights st) (lives st) (Map.add b (Guest b bytes (time st) None) (standing st))
              (over st) (sound st && negb (Map.mem b (standing st)))
    | Settled b =>
        match Map.find b (standing st) with
        | Some it => State (time st) (seen st) (sights st) (lives st)
                           (Map.add b (Guest b (guest_bytes it) (entered it) (Some (time st))) (standing st))
                           (over st) (sound st)
        | None => State (time st) (seen st) (sights st) (lives st) (standing st) (over st) false
        end
    | Use b s => with_use st b s None
    | LastUse b s => with_use st b s (Some (time st, now (sight_of (sights st) s)))
    | Outside b =>
        with_live st b (fun it => Live (own it) (size it) (allocated it) (waited it) (users_on it) true)
    | Free b =>
        match Map.find b (lives st) with
        | Some it => State (time st) (seen st) (sights st) (Map.remove b (lives st)) (standing st)
                           (end_of st b it (Some (time st)) [] :: over st) (sound st && rests_on_looks st it)
        | None => State (time st) (seen st) (sights st) (lives st) (standing st) (over st) false
        end
    end.

End Reading.

(** Nodes are numbered in the order in which they come, and a look names only nodes that have come. *)
Fixpoint in_order (n : positive) (journal : list entry) : bool :=
  match journal with
  | [] => true
  | NewNode v _ :: rest => Pos.eqb v n && in_order (Pos.succ n) rest
  | Terminals _ nodes :: rest => forallb (fun v => Pos.ltb v n) nodes && in_order n rest
  | _ :: rest => in_order n rest
  end.

(** All blocks of a capture. *)
Record capture := Capture {
  nodes_of : graph;
  lives_of : list life;
  standing_of : list guest;
  (** Whether the journal is one. *)
  valid : bool
}.

Definition no_state : state := State 0 (Map.empty _) (Map.empty _) (Map.empty _) (Map.empty _) [] true.

(** By edges of any kind: under [Lag] every edge proves something. *)
Definition any_clocks (g : graph) : clocks := read_clocks Lag g.

Definition deps_map (g : graph) : map (list (node * kind)) :=
  fold_left (fun m it => Map.add (fst it) (snd it) m) g (Map.empty _).

Definition read (journal : list entry) : capture :=
  let g := graph_of journal in
  let deps := deps_map g in
  let any := any_clocks g in
  let st := fold_left (step deps any) journal no_state in
  let rest := List.map (fun it => end_of any st (fst it) (snd it) None (List.map fst g)) (Map.elements (lives st)) in
  Capture g (over st ++ rest) (List.map snd (Map.elements (standing st)))
          (in_order 1 journal && sound st && forallb (fun it => rests_on_looks st (snd it)) (Map.elements (lives st))).
