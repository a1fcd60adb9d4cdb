(** A captured graph, what its edges prove, and the runs that they allow.

    Nothing here knows of memory. At the end stand clocks: a compact way to say what comes before a node, with a
    proof that they say neither more nor less than the paths of the graph. *)

From Coq Require Import List Arith NArith PArith Lia Bool FMapPositive FMapFacts.
Import ListNotations.
Open Scope N_scope.

Module Map := PositiveMap.
Definition map := Map.t.

Definition node := positive.

(** An edge as the driver tells it. *)
Inductive kind := FullEdge | Programmatic.

(** What an edge proves. [Full]: the earlier node is completed before the later one starts. [Start]: it has started
    before the later one starts, and is completed before the later one is. *)
Inductive strength := Full | Start.

(** What is believed of programmatic edges. *)
Inductive policy := Auto | Deny | Lag | Trust.

Definition proves (p : policy) (k : kind) : option strength :=
  match k, p with
  | FullEdge, _ => Some Full
  | Programmatic, Deny => None
  | Programmatic, Trust => Some Full
  | Programmatic, (Auto | Lag) => Some Start
  end.

(** The nodes in the order of their launch, each with the edges that lead to it. *)
Definition graph := list (node * list (node * kind)).

Definition edge (g : graph) (u : node) (k : kind) (v : node) : Prop :=
  exists deps, In (v, deps) g /\ In (u, k) deps.

(** Nodes are numbered in their order, and edges come from earlier nodes. So a graph has no cycle. *)
Fixpoint numbered (n : positive) (g : graph) : Prop :=
  match g with
  | [] => True
  | (v, deps) :: rest =>
      v = n /\ (forall u k, In (u, k) deps -> (u < n)%positive) /\ numbered (Pos.succ n) rest
  end.

Definition well_formed (g : graph) : Prop := numbered 1 g.

(** A run gives each node a time at which it starts and one at which it is completed. It is legal if it keeps what the
    edges prove. Nodes without a path between them may overlap or come in any order. *)
Definition legal (p : policy) (g : graph) (starts ends : node -> N) : Prop :=
  (forall v, starts v < ends v) /\
  forall u k v, edge g u k v ->
    match proves p k with
    | Some Full => ends u <= starts v
    | Some Start => starts u <= starts v /\ ends u <= ends v
    | None => True
    end.

(** A linear extension: all nodes in one line, none before a node that an edge which proves something puts before it. *)
Definition linear_extension (p : policy) (g : graph) (line : list node) : Prop :=
  NoDup line /\ (forall v deps, In (v, deps) g -> In v line) /\
  forall u k v, edge g u k v -> proves p k <> None ->
    exists before between behind, line = before ++ u :: between ++ v :: behind.

Section Paths.
  Variable p : policy.
  Variable g : graph.

  (** A path of edges that prove something, or the node itself. *)
  Inductive reach : node -> node -> Prop :=
  | reach_self v : reach v v
  | reach_step u v w k s : reach u v -> edge g v k w -> proves p k = Some s -> reach u w.

  (** A path with at least one edge that proves completion. This is C(x, y) of design/safety.md. *)
  Inductive completed : node -> node -> Prop :=
  | completed_full u v w k : reach u v -> edge g v k w -> proves p k = Some Full -> completed u w
  | completed_start u v w k : completed u v -> edge g v k w -> proves p k = Some Start -> completed u w.

  Lemma reach_trans : forall u v w, reach u v -> reach v w -> reach u w.
  Proof. intros u v w H J; induction J; eauto using reach. Qed.

  Lemma completed_reach : forall u v, completed u v -> reach u v.
  Proof. intros u v H; induction H; eauto using reach. Qed.

  Lemma reach_completed : forall u v w, reach u v -> completed v w -> completed u w.
  Proof.
    intros u v w H J; induction J as [v x w k R E P|v x w k C IH E P].
    - eapply completed_full; [eapply reach_trans; [exact H|exact R]|exact E|exact P].
    - eapply completed_start; [exact (IH H)|exact E|exact P].
  Qed.

  Lemma completed_then : forall u v w, completed u v -> reach v w -> completed u w.
  Proof.
    intros u v w H J; induction J as [|v x w k s J IH E P]; auto.
    specialize (IH H). destruct s.
    - eapply completed_full; [apply completed_reach; apply IH|exact E|exact P].
    - eapply completed_start; [apply IH|exact E|exact P].
  Qed.

  (** What a path says holds in every run. *)
  Lemma reach_in_runs : forall starts ends, legal p g starts ends ->
    forall u v, reach u v -> starts u <= starts v /\ ends u <= ends v.
  Proof.
    intros starts ends [Pos Edges] u v H; induction H as [|u v w k s H IH E P]; [lia|].
    specialize (Edges _ _ _ E); rewrite P in Edges.
    pose proof (Pos v); pose proof (Pos w).
    destruct s; lia.
  Qed.

  (** C(x, y): in every run x is completed before y starts. *)
  Theorem completed_in_runs : forall starts ends, legal p g starts ends ->
    forall u v, completed u v -> ends u <= starts v.
  Proof.
    intros starts ends L u v H; induction H as [u v w k H E P|u v w k H IH E P];
      pose proof L as [Pos Edges]; specialize (Edges _ _ _ E); rewrite P in Edges.
    - apply (reach_in_runs _ _ L) in H; lia.
    - lia.
  Qed.

End Paths.

(** * Linear extensions are runs: the node at place i starts at 2i and is completed at 2i + 1. *)

Fixpoint place_of (v : node) (line : list node) : N :=
  match line with
  | [] => 0
  | w :: rest => if Pos.eqb v w then 0 else N.succ (place_of v rest)
  end.

Lemma place_of_app : forall v before behind, ~ In v before ->
  place_of v (before ++ behind) = N.of_nat (length before) + place_of v behind.
Proof.
  induction before as [|w before IH]; intros behind H; cbn [app place_of length]; [lia|].
  destruct (Pos.eqb_spec v w) as [->|]; [exfalso; apply H; left; auto|].
  rewrite IH by (intros J; apply H; right; auto). rewrite Nat2N.inj_succ. lia.
Qed.

Lemma linear_extension_is_legal : forall p g line, linear_extension p g line ->
  legal p g (fun v => 2 * place_of v line) (fun v => 2 * place_of v line + 1).
Proof.
  intros p g line [D [All Order]]; split; [intros; lia|].
  intros u k v E.
  assert (L : proves p k <> None -> place_of u line < place_of v line).
  { intros P. destruct (Order _ _ _ E P) as [a [b [c ->]]].
    pose proof (NoDup_remove_2 _ _ _ D) as Nu.
    replace (a ++ u :: b ++ v :: c) with ((a ++ u :: b) ++ v :: c) in D by (rewrite <- app_assoc; auto).
    pose proof (NoDup_remove_2 _ _ _ D) as Nv.
    rewrite (place_of_app u a) by (intros X; apply Nu; apply in_or_app; auto).
    replace (a ++ u :: b ++ v :: c) with ((a ++ u :: b) ++ v :: c) by (rewrite <- app_assoc; auto).
    rewrite (place_of_app v (a ++ u :: b)) by (intros X; apply Nv; apply in_or_app; auto).
    rewrite app_length; cbn [length place_of]. rewrite Pos.eqb_refl. rewrite Nat2N.inj_add, Nat2N.inj_succ. lia. }
  destruct (proves p k) as [[]|]; auto; specialize (L ltac:(discriminate)); lia.
Qed.

(** C(x, y): in every linear extension x stands before y. *)
Theorem completed_in_extensions : forall p g line, linear_extension p g line ->
  forall u v, completed p g u v -> place_of u line < place_of v line.
Proof.
  intros p g line L u v H.
  pose proof (completed_in_runs p g _ _ (linear_extension_is_legal _ _ _ L) u v H) as J.
  cbv beta in J. lia.
Qed.

(** * Clocks

    The nodes are cut into chains, each a path of edges that prove something. A clock has a number for each chain: how
    far into it the nodes lie that it speaks of. *)

Definition clock := list N.

Definition get (c : nat) (k : clock) : N := nth c k 0.

Fixpoint join (a b : clock) : clock :=
  match a, b with
  | [], _ => b
  | _, [] => a
  | x :: a, y :: b => N.max x y :: join a b
  end.

Fixpoint meet (a b : clock) : clock :=
  match a, b with
  | x :: a, y :: b => N.min x y :: meet a b
  | _, _ => []
  end.

Fixpoint within (a b : clock) : bool :=
  match a, b with
  | [], _ => true
  | x :: a, [] => (x =? 0) && within a []
  | x :: a, y :: b => (x <=? y) && within a b
  end.

(** The clock with one number. *)
Definition only (c : nat) (x : N) : clock := repeat 0 c ++ [x].

Lemma get_join : forall a b c, get c (join a b) = N.max (get c a) (get c b).
Proof.
  unfold get; induction a as [|x a IH]; intros b c.
  - simpl; destruct c; simpl; lia.
  - destruct b as [|y b]; destruct c; simpl; try lia. apply IH.
Qed.

Lemma get_meet : forall a b c, get c (meet a b) = N.min (get c a) (get c b).
Proof.
  unfold get; induction a as [|x a IH]; intros b c.
  - simpl; destruct c; simpl; lia.
  - destruct b as [|y b]; destruct c; simpl; try lia. apply IH.
Qed.

Lemma within_spec : forall a b, within a b = true <-> forall c, get c a <= get c b.
Proof.
  unfold get; induction a as [|x a IH]; intros b.
  - simpl; split; auto. intros _ []; simpl; lia.
  - destruct b as [|y b]; simpl; rewrite andb_true_iff, IH.
    + split.
      * intros [E H] [|c]; [apply N.eqb_eq in E; lia|]. specialize (H c). destruct c; simpl in *; lia.
      * intros H; split; [apply N.eqb_eq; specialize (H O); simpl in H; lia|].
        intros c; specialize (H (S c)); simpl in H; destruct c; simpl; lia.
    + split.
      * intros [E H] [|c]; [apply N.leb_le in E; lia|]. apply H.
      * intros H; split; [apply N.leb_le; apply (H O)|]. intros c; apply (H (S c)).
Qed.

Lemma get_only_same : forall c x, get c (only c x) = x.
Proof.
  intros; unfold get, only. rewrite app_nth2; rewrite repeat_length; [|lia].
  replace (c - c)%nat with O by lia; auto.
Qed.

Lemma get_only_other : forall c d x, c <> d -> get d (only c x) = 0.
Proof.
  intros; unfold get, only. destruct (Nat.lt_ge_cases d c).
  - rewrite app_nth1 by (rewrite repeat_length; lia). apply nth_repeat.
  - rewrite app_nth2 by (rewrite repeat_length; lia). rewrite repeat_length.
    destruct (d - c)%nat as [|e] eqn:E; [lia|]. simpl. destruct e; auto.
Qed.

Definition joins (l : list clock) : clock := fold_right join [] l.

Lemma get_joins_in : forall l k c, In k l -> get c k <= get c (joins l).
Proof.
  induction l as [|x l IH]; intros k c H; [destruct H|]. simpl. rewrite get_join.
  destruct H as [->|H]; [lia|]. specialize (IH _ c H). lia.
Qed.

Lemma get_joins_from : forall l c, get c (joins l) = 0 \/ exists k, In k l /\ get c (joins l) = get c k.
Proof.
  induction l as [|x l IH]; intros c; simpl.
  - left. unfold get. destruct c; auto.
  - rewrite get_join. destruct (N.max_spec (get c x) (get c (joins l))) as [[_ ->]|[_ ->]].
    + destruct (IH c) as [H|[k [I H]]]; auto. right; exists k; auto.
    + right; exists x; auto.
Qed.

(** What is kept of a node: its chain and its place there from one, how far into each chain the nodes lie that
    reach it, and those that are completed before it starts. *)
Record info := Info { chain : nat; position : N; reached : clock; finished : clock }.

(** The infos of the nodes so far, the nodes that end a chain so far, and how many chains there are. *)
Record clocks := Clocks { infos : map info; tails : map unit; width : nat }.

Definition no_clocks : clocks := Clocks (Map.empty _) (Map.empty _) 0.

Section Reading.
  Variable p : policy.

  (** The edges that prove something, with what is kept of the nodes that they come from. *)
  Fixpoint sources (m : map info) (deps : list (node * kind)) : list (node * strength * info) :=
    match deps with
    | [] => []
    | (u, k) :: rest =>
        match proves p k, Map.find u m with
        | Some s, Some i => (u, s, i) :: sources m rest
        | _, _ => sources m rest
        end
    end.

  Definition brought (it : node * strength * info) : clock :=
    match it with (_, Full, i) => reached i | (_, Start, i) => finished i end.

  Definition add (c : clocks) (it : node * list (node * kind)) : clocks :=
    let (v, deps) := it in
    let from := sources (infos c) deps in
    let before := joins (List.map (fun it => reached (snd it)) from) in
    let fin := joins (List.map brought from) in
    match find (fun it => Map.mem (fst (fst it)) (tails c)) from with
    | Some (u, _, i) =>
        let at_ := N.succ (position i) in
        Clocks (Map.add v (Info (chain i) at_ (join before (only (chain i) at_)) fin) (infos c))
               (Map.add v tt (Map.remove u (tails c))) (width c)
    | None =>
        Clocks (Map.add v (Info (width c) 1 (join before (only (width c) 1)) fin) (infos c))
               (Map.add v tt (tails c)) (S (width c))
    end.

  Definition read_clocks (g : graph) : clocks := fold_left add g no_clocks.

End Reading.

Lemma in_sources : forall p m deps u s i,
  In (u, s, i) (sources p m deps) <->
  exists k, In (u, k) deps /\ proves p k = Some s /\ Map.find u m = Some i.
Proof.
  intros p m; induction deps as [|[w k] deps IH]; intros u s i; simpl.
  - split; [tauto|]. intros [? [[] _]].
  - destruct (proves p k) as [t|] eqn:P; [destruct (Map.find w m) as [j|] eqn:F|].
    + simpl; rewrite IH; split.
      * intros [E|[k' H]]; [injection E; intros; subst; exists k; auto|exists k'; intuition].
      * intros [k' [[E|I] [P' F']]]; [left|right; exists k'; auto].
        injection E; intros; subst. rewrite F in F'; rewrite P in P'. congruence.
    + rewrite IH; split; intros [k' H]; exists k'; intuition. congruence.
    + rewrite IH; split; intros [k' H]; exists k'; intuition. congruence.
Qed.

Lemma numbered_in : forall g n v deps, numbered n g -> In (v, deps) g ->
  (n <= v)%positive /\ forall u k, In (u, k) deps -> (u < v)%positive.
Proof.
  induction g as [|[w ds] g IH]; intros n v deps H I; [destruct I|].
  destruct H as [-> [D R]]. destruct I as [E|I].
  - injection E; intros; subst. split; [lia|auto].
  - destruct (IH _ _ _ R I). split; [lia|auto].
Qed.

Lemma numbered_unique : forall g n v d e, numbered n g -> In (v, d) g -> In (v, e) g -> d = e.
Proof.
  induction g as [|[w ds] g IH]; intros n v d e H I J; [destruct I|].
  destruct H as [-> [D R]].
  destruct I as [E|I], J as [F|J].
  - congruence.
  - injection E; intros; subst. destruct (numbered_in _ _ _ _ R J); lia.
  - injection F; intros; subst. destruct (numbered_in _ _ _ _ R I); lia.
  - eauto.
Qed.

Lemma edge_up : forall g u k v, well_formed g -> edge g u k v -> (u < v)%positive.
Proof. intros g u k v W [d [I J]]. eapply numbered_in; eauto. Qed.

Lemma reach_up : forall p g u v, well_formed g -> reach p g u v -> (u <= v)%positive.
Proof.
  intros p g u v W H; induction H; [lia|]. pose proof (edge_up _ _ _ _ W H0). lia.
Qed.

Lemma completed_up : forall p g u v, well_formed g -> completed p g u v -> (u < v)%positive.
Proof.
  intros p g u v W H; destruct H.
  - pose proof (reach_up _ _ _ _ W H); pose proof (edge_up _ _ _ _ W H0); lia.
  - apply completed_reach in H. pose proof (reach_up _ _ _ _ W H); pose proof (edge_up _ _ _ _ W H0); lia.
Qed.

Section Exact.
  Variable p : policy.
  Variable g : graph.
  Hypothesis W : well_formed g.

  Notation "x ~> y" := (reach p g x y) (at level 70).
  Notation "x >>> y" := (completed p g x y) (at level 70).

  (** What holds of the clocks of the nodes before [next]. *)
  Record good (next : positive) (c : clocks) : Prop := {
    domain : forall v i, Map.find v (infos c) = Some i -> (v < next)%positive;
    narrow : forall v i, Map.find v (infos c) = Some i -> (chain i < width c)%nat /\ 1 <= position i;
    paths : forall x i y j, Map.find x (infos c) = Some i -> Map.find y (infos c) = Some j ->
      chain i = chain j -> position i <= position j -> x ~> y;
    ends : forall u i, Map.find u (infos c) = Some i -> Map.mem u (tails c) = true ->
      forall x j, Map.find x (infos c) = Some j -> chain j = chain i -> position j <= position i;
    reached_by : forall v i d, Map.find v (infos c) = Some i ->
      get d (reached i) = 0 \/ exists y j, Map.find y (infos c) = Some j /\ chain j = d /\
        position j = get d (reached i) /\ y ~> v;
    finished_by : forall v i d, Map.find v (infos c) = Some i ->
      get d (finished i) = 0 \/ exists y j, Map.find y (infos c) = Some j /\ chain j = d /\
        position j = get d (finished i) /\ y >>> v;
    reached_all : forall v i x j, Map.find v (infos c) = Some i -> Map.find x (infos c) = Some j ->
      x ~> v -> position j <= get (chain j) (reached i);
    finished_all : forall v i x j, Map.find v (infos c) = Some i -> Map.find x (infos c) = Some j ->
      x >>> v -> position j <= get (chain j) (finished i)
  }.

  Lemma reach_last : forall x v deps, In (v, deps) g -> x ~> v -> x <> v ->
    exists u k s, In (u, k) deps /\ proves p k = Some s /\ x ~> u.
  Proof.
    intros x v deps I H N. destruct H as [|u w v k s H E P]; [congruence|].
    destruct E as [d [J K]]. rewrite (numbered_unique _ _ _ _ _ W I J).
    exists w, k, s; auto.
  Qed.

  Lemma completed_last : forall x v deps, In (v, deps) g -> x >>> v ->
    exists u k s, In (u, k) deps /\ proves p k = Some s /\
      match s with Full => x ~> u | Start => x >>> u end.
  Proof.
    intros x v deps I H. destruct H as [u w v k H E P|u w v k H E P];
      destruct E as [d [J K]]; rewrite (numbered_unique _ _ _ _ _ W I J).
    - exists w, k, Full; auto.
    - exists w, k, Start; auto.
  Qed.

  (** One more node: the new info has chain [ch] and place [at_], and either the chain is new or the new node follows
      the node that ended it. *)
  Lemma good_add_with : forall c v deps ch at_ tails' width',
    good v c -> In (v, deps) g ->
    (forall u k, In (u, k) deps -> exists i, Map.find u (infos c) = Some i) ->
    1 <= at_ -> (width c <= width')%nat -> (ch < width')%nat ->
    (forall x j, Map.find x (infos c) = Some j -> chain j = ch -> position j < at_ /\ x ~> v) ->
    (forall u, Map.mem u tails' = true -> u = v \/
       Map.mem u (tails c) = true /\ forall i, Map.find u (infos c) = Some i -> chain i <> ch) ->
    let from := sources p (infos c) deps in
    good (Pos.succ v)
      (Clocks (Map.add v (Info ch at_ (join (joins (List.map (fun it => reached (snd it)) from)) (only ch at_))
                                (joins (List.map brought from))) (infos c)) tails' width').
  Proof.
    intros c v deps ch at_ tails' width' G I Known One Wide In_ Chain Tails from.
    set (new := Info _ _ _ _).
    assert (Fresh : Map.find v (infos c) = None).
    { destruct (Map.find v (infos c)) eqn:F; auto. apply (domain _ _ G) in F. lia. }
    assert (Step : forall u k s, In (u, k) deps -> proves p k = Some s -> u ~> v).
    { intros u k s J P. eapply reach_step; [apply reach_self| |eauto]. exists deps; auto. }
    assert (Case : forall x i, Map.find x (Map.add v new (infos c)) = Some i ->
      x = v /\ i = new \/ x <> v /\ Map.find x (infos c) = Some i).
    { intros x i F. destruct (Pos.eq_dec x v) as [->|N].
      - rewrite Map.gss in F. injection F; auto.
      - rewrite Map.gso in F by auto. auto. }
    assert (Old : forall x j, Map.find x (infos c) = Some j -> Map.find x (Map.add v new (infos c)) = Some j).
    { intros x j F. rewrite Map.gso; auto. intros ->; congruence. }
    assert (Reached : forall d, get d (reached new) =
      N.max (get d (joins (List.map (fun it => reached (snd it)) from))) (get d (only ch at_))).
    { intros d. unfold new; simpl. apply get_join. }
    constructor; simpl.
    - intros x i F. destruct (Case _ _ F) as [[-> _]|[_ F']]; [lia|]. apply (domain _ _ G) in F'. lia.
    - intros x i F. destruct (Case _ _ F) as [[_ ->]|[_ F']]; [simpl; auto|].
      apply (narrow _ _ G) in F'. lia.
    - intros x i y j F H E L. destruct (Case _ _ F) as [[-> ->]|[N F']], (Case _ _ H) as [[-> ->]|[M H']].
      + apply reach_self.
      + simpl in *. destruct (Chain _ _ H'); auto. lia.
      + simpl in *. apply (Chain _ _ F'). auto.
      + eapply (paths _ _ G); eauto.
    - intros u i F T x j H E. destruct (Tails _ T) as [->|[T' Other]].
      + rewrite Map.gss in F; injection F; intros; subst; simpl in *.
        destruct (Case _ _ H) as [[-> ->]|[M H']]; [simpl; lia|]. destruct (Chain _ _ H'); auto. lia.
      + destruct (Case _ _ F) as [[-> ->]|[N F']].
        * simpl in *. destruct (Case _ _ H) as [[-> ->]|[M H']]; [simpl; lia|].
          destruct (Chain _ _ H'); auto. lia.
        * destruct (Case _ _ H) as [[-> ->]|[M H']].
          -- simpl in E. exfalso. apply (Other _ F'). auto.
          -- eapply (ends _ _ G); eauto.
    - intros x i d F. destruct (Case _ _ F) as [[-> ->]|[N F']].
      + rewrite Reached.
        destruct (N.max_spec (get d (joins (List.map (fun it => reached (snd it)) from))) (get d (only ch at_)))
          as [[_ ->]|[_ ->]].
        * destruct (Nat.eq_dec ch d) as [->|D].
          -- rewrite get_only_same. right. exists v, new. rewrite Map.gss. repeat split; auto. apply reach_self.
          -- rewrite get_only_other by auto. auto.
        * destruct (get_joins_from (List.map (fun it => reached (snd it)) from) d) as [Z|[k [J ->]]]; auto.
          apply in_map_iff in J. destruct J as [[[u s] i] [<- J]]. simpl.
          apply in_sources in J. destruct J as [k' [J [P Fu]]].
          destruct (reached_by _ _ G _ _ d Fu) as [Z|[y [j [Fy [Cy [Py R]]]]]]; auto.
          right. exists y, j. repeat split; auto. eapply reach_trans; eauto.
      + destruct (reached_by _ _ G _ _ d F') as [Z|[y [j [Fy [Cy [Py R]]]]]]; auto.
        right. exists y, j. auto.
    - intros x i d F. destruct (Case _ _ F) as [[-> ->]|[N F']].
      + unfold new; simpl.
        destruct (get_joins_from (List.map brought from) d) as [Z|[k [J ->]]]; auto.
        apply in_map_iff in J. destruct J as [[[u s] i] [<- J]].
        apply in_sources in J. destruct J as [k' [J [P Fu]]].
        assert (E : edge g u k' v) by (exists deps; auto).
        destruct s; simpl.
        * destruct (reached_by _ _ G _ _ d Fu) as [Z|[y [j [Fy [Cy [Py R]]]]]]; auto.
          right. exists y, j. repeat split; auto. eapply completed_full; eauto.
        * destruct (finished_by _ _ G _ _ d Fu) as [Z|[y [j [Fy [Cy [Py R]]]]]]; auto.
          right. exists y, j. repeat split; auto. eapply completed_start; eauto.
      + destruct (finished_by _ _ G _ _ d F') as [Z|[y [j [Fy [Cy [Py R]]]]]]; auto.
        right. exists y, j. auto.
    - intros x i y j F H R. destruct (Case _ _ F) as [[-> ->]|[N F']], (Case _ _ H) as [[-> ->]|[M H']].
      + rewrite Reached. simpl. rewrite get_only_same. lia.
      + rewrite Reached. destruct (reach_last _ _ _ I R M) as [u [k [s [J [P Q]]]]].
        destruct (Known _ _ J) as [iu Fu].
        pose proof (reached_all _ _ G _ _ _ _ Fu H' Q).
        assert (get (chain j) (reached iu) <= get (chain j) (joins (List.map (fun it => reached (snd it)) from))).
        { apply get_joins_in. apply in_map_iff. exists (u, s, iu). split; auto. apply in_sources. eauto. }
        lia.
      + apply (reach_up _ _ _ _ W) in R. apply (domain _ _ G) in F'. lia.
      + eapply (reached_all _ _ G); eauto.
    - intros x i y j F H R. destruct (Case _ _ F) as [[-> ->]|[N F']], (Case _ _ H) as [[-> ->]|[M H']].
      + apply (completed_up _ _ _ _ W) in R. lia.
      + unfold new; simpl. destruct (completed_last _ _ _ I R) as [u [k [s [J [P Q]]]]].
        destruct (Known _ _ J) as [iu Fu].
        assert (get (chain j) (brought (u, s, iu)) <= get (chain j) (joins (List.map brought from))).
        { apply get_joins_in. apply in_map_iff. exists (u, s, iu). split; auto. apply in_sources. eauto. }
        destruct s; simpl in *.
        * pose proof (reached_all _ _ G _ _ _ _ Fu H' Q). lia.
        * pose proof (finished_all _ _ G _ _ _ _ Fu H' Q). lia.
      + apply (completed_up _ _ _ _ W) in R. apply (domain _ _ G) in F'. lia.
      + eapply (finished_all _ _ G); eauto.
  Qed.

  Lemma good_add : forall c v deps, good v c -> In (v, deps) g ->
    (forall u k, In (u, k) deps -> exists i, Map.find u (infos c) = Some i) ->
    good (Pos.succ v) (add p c (v, deps)).
  Proof.
    intros c v deps G I Known. unfold add.
    destruct (find _ _) as [[[u s] i]|] eqn:F.
    - apply find_some in F. destruct F as [J T]. simpl in T.
      apply in_sources in J. destruct J as [k [J [P Fu]]].
      assert (R : u ~> v) by (eapply reach_step; [apply reach_self|exists deps; eauto|eauto]).
      destruct (narrow _ _ G _ _ Fu).
      eapply good_add_with; eauto; try lia.
      + intros x j Fx E. pose proof (ends _ _ G _ _ Fu T _ _ Fx E). split; [lia|].
        eapply reach_trans; eauto. eapply (paths _ _ G); eauto.
      + intros w M. rewrite Map.mem_find in M. destruct (Pos.eq_dec w v) as [->|N]; auto.
        rewrite Map.gso in M by auto. destruct (Pos.eq_dec w u) as [->|N'].
        * rewrite Map.grs in M. discriminate.
        * rewrite Map.gro in M by auto. right. split; [rewrite Map.mem_find; auto|].
          intros j Fw E.
          assert (position j <= position i) by (eapply (ends _ _ G); eauto).
          assert (position i <= position j).
          { eapply (ends _ _ G _ _ Fw); eauto. rewrite Map.mem_find; auto. }
          assert (A : w ~> u) by (eapply (paths _ _ G); eauto).
          assert (B : u ~> w) by (eapply (paths _ _ G); eauto; lia).
          apply (reach_up _ _ _ _ W) in A. apply (reach_up _ _ _ _ W) in B. lia.
    - eapply good_add_with; eauto; try lia.
      + intros x j Fx E. destruct (narrow _ _ G _ _ Fx). lia.
      + intros w M. rewrite Map.mem_find in M. destruct (Pos.eq_dec w v) as [->|N]; auto.
        rewrite Map.gso in M by auto. right. split; [rewrite Map.mem_find; auto|].
        intros j Fw E. destruct (narrow _ _ G _ _ Fw). lia.
  Qed.

  Definition total (next : positive) (c : clocks) : Prop :=
    forall v, (v < next)%positive -> exists i, Map.find v (infos c) = Some i.

  Lemma total_add : forall c v deps, total v c -> total (Pos.succ v) (add p c (v, deps)).
  Proof.
    intros c v deps T w L. unfold add.
    assert (K : forall (i : info) (m : map info), (forall u, (u < v)%positive -> exists i, Map.find u m = Some i) ->
      exists j, Map.find w (Map.add v i m) = Some j).
    { intros i m H. destruct (Pos.eq_dec w v) as [->|N]; [rewrite Map.gss; eauto|].
      rewrite Map.gso by auto. apply H. lia. }
    destruct (find _ _) as [[[u s] i]|]; simpl; apply K; apply T.
  Qed.

  Lemma good_fold : forall rest done n c, g = done ++ rest -> numbered n rest -> good n c -> total n c ->
    exists m, good m (fold_left (add p) rest c) /\ total m (fold_left (add p) rest c) /\
      (forall v deps, In (v, deps) rest -> (v < m)%positive) /\ (n <= m)%positive.
  Proof.
    induction rest as [|[v deps] rest IH]; intros done n c E Num G T.
    - exists n. simpl. split; [auto|split; [auto|split; [intros ? ? []|lia]]].
    - destruct Num as [-> [D R]]. simpl.
      destruct (IH (done ++ [(n, deps)]) (Pos.succ n) (add p c (n, deps))) as [m [G' [T' [A L]]]]; auto.
      + rewrite <- app_assoc. auto.
      + apply good_add; auto.
        * rewrite E. apply in_or_app. right. left. auto.
        * intros u k I. apply T. eapply D; eauto.
      + apply total_add. auto.
      + exists m. split; [auto|split; [auto|split; [|lia]]].
        intros x d [H|H]; [injection H; intros; subst; lia|eauto].
  Qed.

  Lemma good_read : exists m, good m (read_clocks p g) /\ total m (read_clocks p g) /\
    forall v deps, In (v, deps) g -> (v < m)%positive.
  Proof.
    destruct (good_fold g [] 1%positive no_clocks) as [m [G [T [A _]]]]; auto.
    - constructor; simpl; intros; try (rewrite Map.gempty in *; discriminate).
    - intros v L. lia.
    - exists m; auto.
  Qed.

  (** Every node has an info. *)
  Theorem clocks_known : forall v deps, In (v, deps) g -> exists i, Map.find v (infos (read_clocks p g)) = Some i.
  Proof. intros v deps I. destruct good_read as [m [G [T A]]]. apply T. eauto. Qed.

  (** The clocks say of each two nodes whether a path leads from one to the other, and nothing else. *)
  Theorem clocks_reach : forall x i y j,
    Map.find x (infos (read_clocks p g)) = Some i -> Map.find y (infos (read_clocks p g)) = Some j ->
    (x ~> y <-> position i <= get (chain i) (reached j)).
  Proof.
    intros x i y j F H. destruct good_read as [m [G _]]. split.
    - intros R. eapply (reached_all _ _ G); eauto.
    - intros L. destruct (narrow _ _ G _ _ F).
      destruct (reached_by _ _ G _ _ (chain i) H) as [Z|[w [k [Fw [Cw [Pw R]]]]]]; [lia|].
      eapply reach_trans; eauto. eapply (paths _ _ G); eauto. lia.
  Qed.

  (** They say whether a node is completed before another one starts. *)
  Theorem clocks_completed : forall x i y j,
    Map.find x (infos (read_clocks p g)) = Some i -> Map.find y (infos (read_clocks p g)) = Some j ->
    (x >>> y <-> position i <= get (chain i) (finished j)).
  Proof.
    intros x i y j F H. destruct good_read as [m [G _]]. split.
    - intros R. eapply (finished_all _ _ G); eauto.
    - intros L. destruct (narrow _ _ G _ _ F).
      destruct (finished_by _ _ G _ _ (chain i) H) as [Z|[w [k [Fw [Cw [Pw R]]]]]]; [lia|].
      eapply reach_completed; eauto. eapply (paths _ _ G); eauto. lia.
  Qed.

  (** All numbers of a clock are places of nodes. *)
  Lemma reached_from : forall v i d, Map.find v (infos (read_clocks p g)) = Some i ->
    get d (reached i) = 0 \/ exists y j, Map.find y (infos (read_clocks p g)) = Some j /\ chain j = d /\
      position j = get d (reached i).
  Proof.
    intros v i d F. destruct good_read as [m [G _]].
    destruct (reached_by _ _ G _ _ d F) as [Z|[y [j [A [B [C _]]]]]]; eauto 8.
  Qed.

  Lemma position_pos : forall v i, Map.find v (infos (read_clocks p g)) = Some i -> 1 <= position i.
  Proof. intros v i F. destruct good_read as [m [G _]]. apply (narrow _ _ G _ _ F). Qed.

End Exact.
