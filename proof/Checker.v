(** A check of certificates, and the proof that what it accepts is true.

    It is given a journal, the address of each block, and what is said of the least memory. All it decides by the clocks
    of [Order], which it computes itself. *)

From Coq Require Import List Arith NArith PArith Lia Bool FMapPositive Sorted Mergesort Orders Permutation Relations.
From Regraph Require Import Order Capture Memory.
Import ListNotations.
Open Scope N_scope.

(** What is said of a capture's least memory. *)
Record certificate := Certificate {
  minimum : N;
  (** Blocks of which none can have the memory of another, with what each occupies. *)
  chosen : list (block * N);
  (** Streams, with terminals that each had: why none of the blocks can. *)
  thresholds : list (stream * list node);
  (** Chains of blocks that have so many bytes one after the other. *)
  chains : list (N * list block)
}.

Fixpoint numbered_b (n : positive) (g : graph) : bool :=
  match g with
  | [] => true
  | (v, deps) :: rest =>
      Pos.eqb v n && forallb (fun d => Pos.ltb (fst d) n) deps && numbered_b (Pos.succ n) rest
  end.

Lemma numbered_b_spec : forall g n, numbered_b n g = true -> numbered n g.
Proof.
  induction g as [|[v deps] g IH]; intros n H; simpl in *; auto.
  apply andb_true_iff in H. destruct H as [H R]. apply andb_true_iff in H. destruct H as [E D].
  apply Pos.eqb_eq in E. split; [auto|split; [|auto]].
  intros u k I. rewrite forallb_forall in D. specialize (D _ I). apply Pos.ltb_lt in D. auto.
Qed.

(** A block with all that is asked about it, as clocks. *)
Record card := Card {
  whose : life;
  freed_b : bool;
  (** Its free markers, its users, what its other streams gained, and all that it needs. *)
  marks : clock;
  used : clock;
  others : clock;
  needs : clock;
  (** What is completed before each of its users starts; nothing if it has none. *)
  awaited : option clock;
  (** What is known at its allocation. *)
  knows : clock;
  (** Whether its markers cover its users. *)
  covered_b : bool
}.

(** A block of the capture, or one from elsewhere, and its place. *)
Inductive who := Own (k : card) | Other (g : guest).
Record spot := Spot { start : N; stop : N; there : who }.

Module ByStart <: TotalLeBool.
  Definition t := spot.
  Definition leb (a b : spot) : bool := start a <=? start b.
  Theorem leb_total : forall a b, leb a b = true \/ leb b a = true.
  Proof. intros a b. unfold leb. rewrite !N.leb_le. lia. Qed.
End ByStart.
Module SpotSort := Sort ByStart.

Fixpoint all_some {A B} (f : A -> option B) (l : list A) : option (list B) :=
  match l with
  | [] => Some []
  | x :: l => match f x, all_some f l with Some y, Some r => Some (y :: r) | _, _ => None end
  end.

Lemma all_some_in : forall A B (f : A -> option B) l r, all_some f l = Some r ->
  (forall x, In x l -> exists y, f x = Some y /\ In y r) /\ (forall y, In y r -> exists x, In x l /\ f x = Some y).
Proof.
  intros A B f. induction l as [|x l IH]; intros r H; simpl in H.
  - injection H; intros; subst. split; intros ? [].
  - destruct (f x) as [y|] eqn:F; [|discriminate]. destruct (all_some f l) as [s|]; [|discriminate].
    injection H; intros; subst. destruct (IH s eq_refl) as [P Q]. split.
    + intros z [->|I]; [exists y; simpl; auto|]. destruct (P z I) as [w [E J]]. exists w; simpl; auto.
    + intros z [->|I]; [exists x; simpl; auto|]. destruct (Q z I) as [w [J E]]. exists w; simpl; auto.
Qed.

Section Check.
  Variable p : policy.
  Variable g : graph.

  (** The nodes from which programmatic edges lead on. *)
  Definition early_nodes : map unit :=
    fold_left (fun m it =>
      fold_left (fun m d => match snd d with Programmatic => Map.add (fst d) tt m | _ => m end) (snd it) m)
      g (Map.empty _).

  Variable cl : clocks.
  Variable early : map unit.

  Definition full_b (t : node) : bool :=
    match p with Deny | Trust => true | Lag => false | Auto => negb (Map.mem t early) end.

  (** The least clock that holds some nodes; none if the graph lacks one. *)
  Fixpoint clock_of (nodes : list node) : option clock :=
    match nodes with
    | [] => Some []
    | v :: rest =>
        match Map.find v (infos cl), clock_of rest with
        | Some i, Some k => Some (join (only (chain i) (position i)) k)
        | _, _ => None
        end
    end.

  (** What is known behind some terminals. *)
  Fixpoint known_clock (terminals : list node) : option clock :=
    match terminals with
    | [] => Some []
    | t :: rest =>
        match Map.find t (infos cl), known_clock rest with
        | Some i, Some k => Some (join (if full_b t then reached i else finished i) k)
        | _, _ => None
        end
    end.

  (** What is completed before each of some nodes starts. *)
  Fixpoint awaited_clock (nodes : list node) : option clock :=
    match nodes with
    | [] => None
    | v :: rest =>
        let k := match Map.find v (infos cl) with Some i => finished i | None => [] end in
        match awaited_clock rest with Some r => Some (meet k r) | None => Some k end
    end.

  (** What leads to some nodes. *)
  Definition behind_clock (nodes : list node) : clock :=
    joins (List.map (fun v => match Map.find v (infos cl) with Some i => reached i | None => [] end) nodes).

  Definition card_of (b : life) : option card :=
    match clock_of (markers b), clock_of (users b), clock_of (other_gains b),
          clock_of (markers b ++ own_gains b ++ other_gains b ++ point b), known_clock (point b) with
    | Some marks, Some used, Some others, Some needs, Some knows =>
        Some (Card b (match until b with Some _ => negb (outside b) | None => false end) marks used others needs
                   (awaited_clock (users b)) knows (within used (behind_clock (markers b))))
    | _, _, _, _, _ => None
    end.

  Definition awaits (k : clock) (b : card) : bool :=
    match awaited b with Some r => within k r | None => true end.

  (** The marker rule, or the same by name. *)
  Definition ordered_b (a b : card) : bool :=
    freed_b a && (covered_b a && awaits (marks a) b || awaits (used a) b).

  Definition in_use (a : card) : bool := outside (whose a) || match users (whose a) with [] => false | _ => true end.

  (** Whether a block may lie where another lay before. *)
  Definition follows (a b : card) : bool :=
    match until (whose a) with
    | Some t => (t <=? from (whose b)) && (negb (in_use a) || negb (in_use b) || ordered_b a b)
    | None => false
    end.

  (** Whether a block may lie where one from elsewhere stood, or stands later. *)
  Definition clear_of_guest (a : card) (it : guest) : bool :=
    match settled it with Some t => t <=? from (whose a) | None => false end
    || match until (whose a) with Some u => u <=? entered it | None => false end
       && (match settled it with Some _ => true | None => false end || negb (in_use a)).

  Definition pair_ok (a b : spot) : bool :=
    match there a, there b with
    | Own a, Own b => follows a b || follows b a
    | Own a, Other b | Other b, Own a => clear_of_guest a b
    | Other _, Other _ => true
    end.

  Fixpoint clear_of (a : spot) (l : list spot) : bool :=
    match l with
    | [] => true
    | b :: l => if stop a <=? start b then true else pair_ok a b && clear_of a l
    end.

  Fixpoint sweep (l : list spot) : bool :=
    match l with [] => true | a :: l => clear_of a l && sweep l end.

  Definition precedes_b (a b : card) : bool := freed_b a && within (needs a) (knows b).

  Definition works_b (a : card) : bool :=
    negb (freed_b a) || match own_gains (whose a) with [] => false | _ => true end || negb (within (others a) (knows a)).

  (** The blocks of an antichain, each once, with what it occupies. *)
  Fixpoint chosen_cards (cards : map card) (taken : map unit) (l : list (block * N)) : option (list card) :=
    match l with
    | [] => Some []
    | (b, bytes) :: l =>
        match Map.mem b taken, Map.find b cards, chosen_cards cards (Map.add b tt taken) l with
        | false, Some k, Some r =>
            if (occupied (whose k) =? bytes) && works_b k && Pos.eqb (id (whose k)) b then Some (k :: r) else None
        | _, _, _ => None
        end
    end.

  Definition threshold_clocks (l : list (stream * list node)) : option (list (stream * clock)) :=
    all_some (fun t => option_map (pair (fst t)) (known_clock (snd t))) l.

  (** Some threshold of its stream knows all that the block knows, and none knows all that it needs. *)
  Definition stands_apart (ts : list (stream * clock)) (a : card) : bool :=
    existsb (fun t => Pos.eqb (fst t) (on (whose a)) && within (knows a) (snd t)) ts
    && forallb (fun t => negb (freed_b a && within (needs a) (snd t))) ts.

  Fixpoint chain_ok (l : list card) : bool :=
    match l with
    | a :: (b :: _) as l' => precedes_b a b && chain_ok l'
    | _ => true
    end.

  (** Whether blocks are named once. *)
  Fixpoint once (named : map unit) (l : list card) : bool :=
    match l with
    | [] => true
    | a :: l => negb (Map.mem (id (whose a)) named) && once (Map.add (id (whose a)) tt named) l
    end.

  (** What each block has of the chains. *)
  Definition give (k : N) (m : map N) (b : block) : map N :=
    Map.add b (k + match Map.find b m with Some n => n | None => 0 end) m.

  Definition gives (l : list (N * list card)) : map N :=
    fold_right (fun chain m => fold_left (give (fst chain)) (List.map (fun k => id (whose k)) (snd chain)) m)
               (Map.empty _) l.

  Definition chain_cards (cards : map card) (chain : N * list block) : option (N * list card) :=
    option_map (pair (fst chain)) (all_some (fun b => Map.find b cards) (snd chain)).

End Check.

Fixpoint index (l : list card) (m : map card) : option (map card) :=
  match l with
  | [] => Some m
  | k :: l => if Map.mem (id (whose k)) m then None else index l (Map.add (id (whose k)) k m)
  end.

Definition spot_of (places : map N) (b : block) (bytes : N) (k : who) : option spot :=
  match Map.find b places with Some a => Some (Spot a (a + bytes) k) | None => None end.

Definition place_in (places : map N) (b : block) : N := match Map.find b places with Some a => a | None => 0 end.

(** A capture that can be judged, with its blocks as cards. *)
Record judged := Judged { read_as : capture; clocks_of : clocks; early_of : map unit; cards_of : list card; by_id : map card }.

(** Reads a journal, and refuses what is none. *)
Definition judge (p : policy) (journal : list entry) : option judged :=
  let c := read journal in
  let g := nodes_of c in
  if numbered_b 1 g && valid c then
    let cl := read_clocks p g in
    let early := early_nodes g in
    match all_some (card_of p cl early) (lives_of c) with
    | Some cards =>
        match index cards (Map.empty _) with
        | Some m => Some (Judged c cl early cards m)
        | None => None
        end
    | None => None
    end
  else None.

(** Whether the blocks at these addresses alias nothing. *)
Definition check_places (j : judged) (places : map N) : bool :=
  match all_some (fun k => spot_of places (id (whose k)) (occupied (whose k)) (Own k)) (cards_of j),
        all_some (fun s => spot_of places (guest_id s) (guest_bytes s) (Other s)) (standing_of (read_as j)) with
  | Some own, Some others => sweep (SpotSort.sort (own ++ others))
  | _, _ => false
  end.

(** Whether no placement can do with less. *)
Definition check_lower (p : policy) (j : judged) (c : certificate) : bool :=
  match chosen_cards (by_id j) (Map.empty _) (chosen c), threshold_clocks p (clocks_of j) (early_of j) (thresholds c) with
  | Some l, Some ts =>
      (fold_right (fun k sum => occupied (whose k) + sum) 0 l =? minimum c)
      && forallb (stands_apart ts) l && Nat.leb (length ts) (length l)
  | _, _ => false
  end.

(** Whether a placement can do with as much. *)
Definition check_upper (j : judged) (c : certificate) : bool :=
  match all_some (chain_cards (by_id j)) (chains c) with
  | Some l =>
      let m := gives l in
      forallb (fun chain => chain_ok (snd chain) && once (Map.empty _) (snd chain)) l
      && forallb (fun k => negb (works_b k)
           || (match Map.find (id (whose k)) m with Some n => n | None => 0 end =? occupied (whose k))) (cards_of j)
      && (fold_right (fun chain sum => fst chain + sum) 0 l =? minimum c)
  | None => false
  end.

(** The whole check. *)
Definition check (p : policy) (journal : list entry) (places : map N) (c : certificate) : bool :=
  match judge p journal with
  | Some j => check_places j places && check_lower p j c && check_upper j c
  | None => false
  end.

(** * Soundness *)

Section Sound.
  Variable p : policy.
  Variable g : graph.
  Hypothesis W : well_formed g.
  Let cl := read_clocks p g.
  Let early := early_nodes g.

  Lemma within_not : forall a b, within a b = false -> exists c, get c b < get c a.
  Proof.
    unfold get. induction a as [|x a IH]; intros b H; simpl in H; [discriminate|].
    destruct b as [|y b]; apply andb_false_iff in H; destruct H as [H|H].
    - exists O. simpl. apply N.eqb_neq in H. lia.
    - destruct (IH _ H) as [c C]. exists (S c). simpl. destruct c; simpl in *; lia.
    - exists O. simpl. apply N.leb_gt in H. auto.
    - destruct (IH _ H) as [c C]. exists (S c). auto.
  Qed.

  Lemma clock_of_known : forall l k, clock_of cl l = Some k -> forall x, In x l ->
    exists i, Map.find x (infos cl) = Some i /\ position i <= get (chain i) k.
  Proof.
    induction l as [|v l IH]; intros k H x I; [destruct I|]. simpl in H.
    destruct (Map.find v (infos cl)) as [i|] eqn:F; [|discriminate].
    destruct (clock_of cl l) as [r|]; [|discriminate]. injection H; intros; subst.
    destruct I as [->|I].
    - exists i. split; auto. rewrite get_join, get_only_same. lia.
    - destruct (IH _ eq_refl _ I) as [j [Fj L]]. exists j. split; auto. rewrite get_join. lia.
  Qed.

  Lemma clock_of_from : forall l k c, clock_of cl l = Some k -> 0 < get c k ->
    exists x i, In x l /\ Map.find x (infos cl) = Some i /\ chain i = c /\ position i = get c k.
  Proof.
    induction l as [|v l IH]; intros k c H P; simpl in H.
    - injection H; intros; subst. unfold get in P. destruct c; simpl in P; lia.
    - destruct (Map.find v (infos cl)) as [i|] eqn:F; [|discriminate].
      destruct (clock_of cl l) as [r|]; [|discriminate]. injection H; intros; subst.
      rewrite get_join in *.
      destruct (N.max_spec (get c (only (chain i) (position i))) (get c r)) as [[L E]|[L E]]; rewrite E in *.
      + destruct (IH _ _ eq_refl P) as [x [j [I J]]]. exists x, j. simpl. intuition.
      + destruct (Nat.eq_dec (chain i) c) as [<-|N].
        * rewrite get_only_same. exists v, i. simpl. auto.
        * rewrite get_only_other in P by auto. lia.
  Qed.

  (** A clock of nodes lies within another if and only if that holds all of them. *)
  Lemma clock_of_within : forall l k r, clock_of cl l = Some k ->
    (within k r = true <-> forall x i, In x l -> Map.find x (infos cl) = Some i -> position i <= get (chain i) r).
  Proof.
    intros l k r H. rewrite within_spec. split.
    - intros L x i I F. destruct (clock_of_known _ _ H _ I) as [j [Fj Lj]].
      rewrite F in Fj. injection Fj; intros; subst. specialize (L (chain j)). lia.
    - intros L c. destruct (N.eq_0_gt_0_cases (get c k)) as [Z|P]; [lia|].
      destruct (clock_of_from _ _ _ H P) as [x [i [I [F [C E]]]]].
      specialize (L _ _ I F). rewrite C in L. lia.
  Qed.

  Lemma early_spec : forall t, Map.mem t early = leads_on g t.
  Proof.
    intros t. unfold early, early_nodes.
    assert (Inner : forall deps m, Map.mem t
      (fold_left (fun m d => match snd d with Programmatic => Map.add (fst d) tt m | _ => m end) deps m) =
      Map.mem t m || existsb (fun d : node * kind =>
        Pos.eqb (fst d) t && match snd d with Programmatic => true | _ => false end) deps).
    { induction deps as [|[u k] deps IH]; intros m; simpl; [rewrite orb_false_r; auto|].
      rewrite IH. destruct k; simpl; [rewrite andb_false_r; auto|]. rewrite andb_true_r, orb_assoc. f_equal.
      rewrite !Map.mem_find. destruct (Pos.eqb_spec u t) as [->|N].
      - rewrite Map.gss. destruct (Map.find t m); auto.
      - rewrite Map.gso by auto. rewrite orb_false_r. auto. }
    assert (Outer : forall l m, Map.mem t (fold_left (fun m it =>
      fold_left (fun m d => match snd d with Programmatic => Map.add (fst d) tt m | _ => m end) (snd it) m) l m) =
      Map.mem t m || leads_on l t).
    { induction l as [|it l IH]; intros m; simpl; [rewrite orb_false_r; auto|].
      rewrite IH, Inner. unfold leads_on; simpl. rewrite orb_assoc. auto. }
    rewrite Outer. rewrite Map.mem_find, Map.gempty. auto.
  Qed.

  Lemma full_spec : forall t, full_b p early t = taken_for_full p g t.
  Proof. intros t. unfold full_b, taken_for_full. rewrite early_spec. auto. Qed.

  (** The clock of what is known holds K and no more. *)
  Lemma known_spec : forall l k, known_clock p cl early l = Some k ->
    forall x i, Map.find x (infos cl) = Some i -> (known p g l x <-> position i <= get (chain i) k).
  Proof.
    induction l as [|t l IH]; intros k H x i F; simpl in H.
    - injection H; intros; subst. split.
      + intros [? [[] _]].
      + intros L. pose proof (position_pos p g W _ _ F). unfold get in L. destruct (chain i); simpl in L; lia.
    - destruct (Map.find t (infos cl)) as [it|] eqn:Ft; [|discriminate].
      destruct (known_clock p cl early l) as [r|] eqn:R; [|discriminate]. injection H; intros; subst.
      rewrite get_join. specialize (IH _ eq_refl _ _ F). rewrite full_spec.
      pose proof (clocks_reach p g W _ _ _ _ F Ft) as A. pose proof (clocks_completed p g W _ _ _ _ F Ft) as B.
      split.
      + intros [u [[->|I] K]].
        * destruct K as [C|[T C]].
          -- pose proof (completed_reach _ _ _ _ C). destruct (taken_for_full p g u); [apply A in H0|apply B in C]; lia.
          -- rewrite T. apply A in C. lia.
        * assert (known p g l x) as K' by (exists u; auto). apply IH in K'. lia.
      + intros L.
        destruct (N.le_gt_cases (position i) (get (chain i) r)) as [M|M].
        * apply IH in M. destruct M as [u [I K]]. exists u. split; [right|]; auto.
        * exists t. split; [left; auto|]. destruct (taken_for_full p g t).
          -- right. split; auto. apply A. lia.
          -- left. apply B. lia.
  Qed.

  Lemma awaited_spec : forall l k, awaited_clock cl l = Some k ->
    forall x i y, Map.find x (infos cl) = Some i -> In y l -> position i <= get (chain i) k -> completed p g x y.
  Proof.
    induction l as [|v l IH]; intros k H x i y F I L; [destruct I|]. simpl in H.
    assert (V : forall r, position i <= get (chain i) (match Map.find v (infos cl) with Some i => finished i | None => [] end) ->
      r = v -> completed p g x r).
    { intros r Lr ->. destruct (Map.find v (infos cl)) as [j|] eqn:Fv.
      - apply (clocks_completed p g W _ _ _ _ F Fv). auto.
      - pose proof (position_pos p g W _ _ F). unfold get in Lr. destruct (chain i); simpl in Lr; lia. }
    destruct (awaited_clock cl l) as [r|] eqn:R; injection H; intros; subst.
    - rewrite get_meet in L. destruct I as [->|I]; [apply V; auto; lia|]. apply (IH _ eq_refl _ _ _ F I). lia.
    - destruct I as [->|I]; [apply V; auto|]. destruct l as [|w l]; [destruct I|].
      simpl in R. destruct (awaited_clock cl l); discriminate.
  Qed.

  Lemma awaited_none : forall l, awaited_clock cl l = None -> l = [].
  Proof. intros [|v l] H; auto. simpl in H. destruct (awaited_clock cl l); discriminate. Qed.

  Lemma behind_spec : forall l x i, Map.find x (infos cl) = Some i -> position i <= get (chain i) (behind_clock cl l) ->
    exists m, In m l /\ reach p g x m.
  Proof.
    intros l x i F L. unfold behind_clock in L. pose proof (position_pos p g W _ _ F) as P.
    destruct (get_joins_from (List.map (fun v => match Map.find v (infos cl) with Some i => reached i | None => [] end) l)
                             (chain i)) as [Z|[k [I E]]]; [lia|].
    apply in_map_iff in I. destruct I as [m [<- I]]. rewrite E in L.
    destruct (Map.find m (infos cl)) as [j|] eqn:Fm.
    - exists m. split; auto. apply (clocks_reach p g W _ _ _ _ F Fm). auto.
    - unfold get in L. destruct (chain i); simpl in L; lia.
  Qed.

  Section Cards.
    Variables a b : card.
    Hypothesis Ca : card_of p cl early (whose a) = Some a.
    Hypothesis Cb : card_of p cl early (whose b) = Some b.

    Lemma card_parts : forall k, card_of p cl early (whose k) = Some k ->
      clock_of cl (markers (whose k)) = Some (marks k) /\ clock_of cl (users (whose k)) = Some (used k) /\
      clock_of cl (other_gains (whose k)) = Some (others k) /\
      clock_of cl (markers (whose k) ++ own_gains (whose k) ++ other_gains (whose k) ++ point (whose k)) = Some (needs k) /\
      known_clock p cl early (point (whose k)) = Some (knows k) /\
      awaited k = awaited_clock cl (users (whose k)) /\
      covered_b k = within (used k) (behind_clock cl (markers (whose k))) /\
      freed_b k = match until (whose k) with Some _ => negb (outside (whose k)) | None => false end.
    Proof.
      intros k H. unfold card_of in H.
      destruct (clock_of cl (markers (whose k))); [|discriminate].
      destruct (clock_of cl (users (whose k))); [|discriminate].
      destruct (clock_of cl (other_gains (whose k))); [|discriminate].
      destruct (clock_of cl (_ ++ _)); [|discriminate].
      destruct (known_clock _ _ _ _); [|discriminate].
      injection H as H. rewrite <- H. simpl. repeat split.
    Qed.

    Lemma freed_spec : forall k, card_of p cl early (whose k) = Some k -> (freed_b k = true <-> freed (whose k)).
    Proof.
      intros k H. destruct (card_parts _ H) as [_ [_ [_ [_ [_ [_ [_ F]]]]]]]. rewrite F. unfold freed.
      destruct (until (whose k)); split.
      - intros N. apply negb_true_iff in N. split; auto. discriminate.
      - intros [_ ->]. auto.
      - discriminate.
      - intros [N _]. congruence.
    Qed.

    Lemma awaits_spec : forall nodes k, clock_of cl nodes = Some k -> awaits k b = true ->
      forall x y, In x nodes -> In y (users (whose b)) -> completed p g x y.
    Proof.
      intros nodes k H A x y X Y. destruct (card_parts _ Cb) as [_ [_ [_ [_ [_ [Aw _]]]]]].
      unfold awaits in A. rewrite Aw in A. destruct (awaited_clock cl (users (whose b))) as [r|] eqn:R.
      - destruct (clock_of_known _ _ H _ X) as [i [F _]].
        eapply awaited_spec; eauto. eapply clock_of_within; eauto.
      - apply awaited_none in R. rewrite R in Y. destruct Y.
    Qed.

    (** What the check takes for ordered obeys the marker rule, or is ordered by name. *)
    Lemma ordered_spec : ordered_b a b = true ->
      marker_rule p g (whose a) (whose b) \/ ordered p g (whose a) (whose b).
    Proof.
      unfold ordered_b. intros H. apply andb_true_iff in H. destruct H as [F H].
      destruct (card_parts _ Ca) as [M [U [_ [_ [_ [_ [C _]]]]]]].
      apply orb_true_iff in H. destruct H as [H|H].
      - left. apply andb_true_iff in H. destruct H as [Cov H]. split; [apply freed_spec; auto|]. split.
        + intros x X. rewrite C in Cov. destruct (clock_of_known _ _ U _ X) as [i [Fi _]].
          eapply behind_spec; eauto. eapply clock_of_within; eauto.
        + right. intros m y. apply (awaits_spec _ _ M H).
      - right. intros x y. apply (awaits_spec _ _ U H).
    Qed.

    Lemma precedes_spec : precedes_b a b = true <-> precedes p g (whose a) (whose b).
    Proof.
      destruct (card_parts _ Ca) as [_ [_ [_ [N _]]]]. destruct (card_parts _ Cb) as [_ [_ [_ [_ [K _]]]]].
      unfold precedes_b, precedes. rewrite andb_true_iff, (freed_spec _ Ca). unfold needed. split.
      - intros [F Wi]. split; auto. intros x X. destruct (clock_of_known _ _ N _ X) as [i [Fi _]].
        apply (proj2 (known_spec _ _ K _ _ Fi)). exact (proj1 (clock_of_within _ _ _ N) Wi x i X Fi).
      - intros [F H]. split; auto. apply (proj2 (clock_of_within _ _ _ N)). intros x i X Fi.
        apply (proj1 (known_spec _ _ K _ _ Fi)). auto.
    Qed.

    Lemma works_spec : works_b a = true <-> works p g (whose a).
    Proof.
      destruct (card_parts _ Ca) as [_ [_ [O [_ [K _]]]]]. unfold works_b, works.
      rewrite !orb_true_iff, !negb_true_iff. split.
      - intros [[F|G]|O'].
        + left. intros Fr. apply (freed_spec _ Ca) in Fr. congruence.
        + right; left. destruct (own_gains (whose a)); congruence.
        + right; right. apply within_not in O'. destruct O' as [c L].
          destruct (clock_of_from _ _ c O) as [x [i [X [F [C P]]]]]; [lia|]. exists x. split; auto.
          intros Kx. apply (proj1 (known_spec _ _ K _ _ F)) in Kx. subst c. lia.
      - intros [F|[G|[x [X N]]]].
        + left; left. destruct (freed_b a) eqn:E; auto. apply (freed_spec _ Ca) in E. tauto.
        + left; right. destruct (own_gains (whose a)); congruence.
        + right. destruct (within (others a) (knows a)) eqn:E; auto.
          exfalso. apply N. destruct (clock_of_known _ _ O _ X) as [i [F _]].
          apply (proj2 (known_spec _ _ K _ _ F)). exact (proj1 (clock_of_within _ _ _ O) E x i X F).
    Qed.
  End Cards.

  (** ** Places *)

  Definition overlap (a b : spot) : Prop := start a < stop b /\ start b < stop a.

  Lemma clear_of_spec : forall a l, (forall b, In b l -> start a <= start b) -> StronglySorted (fun x y => is_true (ByStart.leb x y)) l ->
    clear_of a l = true -> forall b, In b l -> overlap a b -> pair_ok a b = true.
  Proof.
    induction l as [|c l IH]; intros Le S H b B O; [destruct B|]. simpl in H.
    apply StronglySorted_inv in S. destruct S as [S F]. rewrite Forall_forall in F.
    destruct (stop a <=? start c) eqn:E.
    - apply N.leb_le in E. destruct O as [_ O]. destruct B as [->|B]; [lia|].
      specialize (F _ B). unfold is_true, ByStart.leb in F. apply N.leb_le in F. lia.
    - apply andb_true_iff in H. destruct H as [H1 H2]. destruct B as [->|B]; auto.
      apply IH; auto. intros d D. apply Le. simpl; auto.
  Qed.

  Lemma sweep_spec : forall l, StronglySorted (fun x y => is_true (ByStart.leb x y)) l -> sweep l = true ->
    forall a b, In a l -> In b l -> overlap a b -> a = b \/ pair_ok a b = true \/ pair_ok b a = true.
  Proof.
    induction l as [|c l IH]; intros S H a b A B O; [destruct A|]. simpl in H.
    apply andb_true_iff in H. destruct H as [H1 H2].
    apply StronglySorted_inv in S. destruct S as [S F].
    assert (Le : forall d, In d l -> start c <= start d).
    { rewrite Forall_forall in F. intros d D. specialize (F _ D). unfold is_true, ByStart.leb in F. apply N.leb_le; auto. }
    destruct A as [->|A], B as [->|B]; auto.
    - right; left. eapply clear_of_spec; eauto.
    - right; right. eapply clear_of_spec; eauto. destruct O; split; auto.
  Qed.

End Sound.

Lemma index_spec : forall l m r, index l m = Some r ->
  (forall b k, Map.find b r = Some k -> Map.find b m = Some k \/ In k l /\ id (whose k) = b) /\
  (forall b k, Map.find b m = Some k -> Map.find b r = Some k) /\
  (forall k, In k l -> Map.find (id (whose k)) r = Some k /\ Map.find (id (whose k)) m = None) /\
  NoDup (List.map (fun k => id (whose k)) l).
Proof.
  induction l as [|c l IH]; intros m r H; simpl in H.
  - injection H; intros; subst. split; [auto|split; [auto|split; [intros ? []|constructor]]].
  - destruct (Map.mem (id (whose c)) m) eqn:M; [discriminate|].
    rewrite Map.mem_find in M.
    destruct (IH _ _ H) as [A [B [C D]]]. split; [|split; [|split]].
    + intros b k F. destruct (A b k F) as [F'|[I E]]; [|right; simpl; auto].
      destruct (Pos.eq_dec b (id (whose c))) as [->|N].
      * rewrite Map.gss in F'. injection F'; intros; subst. right. simpl; auto.
      * rewrite Map.gso in F' by auto. auto.
    + intros b k F. apply B. rewrite Map.gso; auto. intros ->. rewrite F in M. discriminate.
    + intros k [->|I].
      * split; [apply B; apply Map.gss|]. destruct (Map.find (id (whose k)) m); congruence.
      * destruct (C k I) as [X Y]. split; auto. destruct (Pos.eq_dec (id (whose k)) (id (whose c))) as [E|N].
        -- rewrite E, Map.gss in Y. discriminate.
        -- rewrite Map.gso in Y by auto. auto.
    + simpl. constructor; auto. intros I. apply in_map_iff in I. destruct I as [k [E I]].
      destruct (C k I) as [_ Y]. rewrite E, Map.gss in Y. discriminate.
Qed.

(** What [judge] has made sure of. *)
Lemma judge_spec : forall p journal j, judge p journal = Some j ->
  let c := read journal in
  read_as j = c /\ well_formed (nodes_of c) /\
  clocks_of j = read_clocks p (nodes_of c) /\ early_of j = early_nodes (nodes_of c) /\
  (forall k, In k (cards_of j) -> In (whose k) (lives_of c) /\
     card_of p (read_clocks p (nodes_of c)) (early_nodes (nodes_of c)) (whose k) = Some k) /\
  (forall b, In b (lives_of c) -> exists k, In k (cards_of j) /\ whose k = b) /\
  NoDup (List.map id (lives_of c)) /\
  (forall b k, Map.find b (by_id j) = Some k -> In k (cards_of j) /\ id (whose k) = b).
Proof.
  intros p journal j H c. subst c. unfold judge in H.
  destruct (numbered_b 1 (nodes_of (read journal)) && valid (read journal)) eqn:V; [|discriminate].
  apply andb_true_iff in V. destruct V as [V _]. apply numbered_b_spec in V.
  destruct (all_some _ _) as [cards|] eqn:A; [|discriminate].
  destruct (index cards (Map.empty _)) as [m|] eqn:I; [|discriminate].
  injection H as <-. cbn [read_as clocks_of early_of cards_of by_id].
  assert (Whose : forall l k, card_of p (read_clocks p (nodes_of (read journal))) (early_nodes (nodes_of (read journal))) l = Some k
    -> whose k = l).
  { intros l k E. unfold card_of in E.
    repeat match type of E with context [match ?x with _ => _ end] => destruct x; [|discriminate] end.
    injection E as <-. auto. }
  assert (Maps : List.map whose cards = lives_of (read journal)).
  { revert A. generalize cards. induction (lives_of (read journal)) as [|l ls IH]; intros cs A; simpl in A.
    - injection A as <-. auto.
    - destruct (card_of p _ _ l) as [k|] eqn:E; [|discriminate].
      destruct (all_some _ ls) as [r|] eqn:R; [|discriminate]. injection A as <-. simpl.
      rewrite (Whose _ _ E), (IH _ eq_refl). auto. }
  destruct (all_some_in _ _ _ _ _ A) as [P Q]. destruct (index_spec _ _ _ I) as [B [_ [_ D]]].
  split; [auto|split; [auto|split; [auto|split; [auto|split; [|split; [|split]]]]]].
  - intros k K. destruct (Q _ K) as [l [L E]]. rewrite (Whose _ _ E). auto.
  - intros b L. destruct (P _ L) as [k [E K]]. exists k. split; auto.
  - rewrite <- Maps, map_map. auto.
  - intros b k F. destruct (B _ _ F) as [E|E]; [rewrite Map.gempty in E; discriminate|auto].
Qed.

Section Theorems.
  Variable p : policy.
  Variable journal : list entry.
  Variable j : judged.
  Hypothesis J : judge p journal = Some j.
  Let c := read journal.
  Let g := nodes_of c.

  (** ** (1) *)

  (** What is proven of two blocks that share an address: the one was freed before the other was handed out, nothing
      outside the capture uses the one if anything uses the other, and in every run and in every line of the nodes that
      keeps the graph's order, every possible user of the one comes before every possible user of the other. *)
  Definition before (a b : life) : Prop :=
    (exists t, until a = Some t /\ t <= from b) /\
    (outside a = true -> users b = [] /\ outside b = false) /\
    (forall starts ends, legal p g starts ends -> apart_in starts ends a b) /\
    (forall line, linear_extension p g line -> apart_along line a b).

  (** What is proven of a block that shares an address with one from elsewhere: that was settled before the block was
      handed out; or the block was freed before that came to stand there, and it was settled in the capture, or nothing
      uses the block. *)
  Definition clear_of_other (a : life) (s : guest) : Prop :=
    (exists t, settled s = Some t /\ t <= from a) \/
    (exists u, until a = Some u /\ u <= entered s /\ (settled s <> None \/ users a = [] /\ outside a = false)).

  Definition nothing_aliased (places : map N) : Prop :=
    (forall a b, In a (lives_of c) -> In b (lives_of c) -> id a <> id b -> share (place_in places) a b ->
       before a b \/ before b a) /\
    (forall a s, In a (lives_of c) -> In s (standing_of c) ->
       forall address, lies_at (place_in places) a address ->
       place_in places (guest_id s) <= address < place_in places (guest_id s) + guest_bytes s ->
       clear_of_other a s).

  Lemma clear_of_guest_spec : forall a s, clear_of_guest a s = true -> clear_of_other (whose a) s.
  Proof.
    intros a s H. unfold clear_of_guest in H. unfold clear_of_other. apply orb_true_iff in H. destruct H as [H|H].
    - left. destruct (settled s) as [t|]; [|discriminate]. apply N.leb_le in H. exists t. auto.
    - right. apply andb_true_iff in H. destruct H as [U H]. destruct (until (whose a)) as [u|]; [|discriminate].
      apply N.leb_le in U. exists u. split; [auto|split; [auto|]].
      destruct (settled s); [left; discriminate|right]. simpl in H. apply negb_true_iff in H.
      unfold in_use in H. apply orb_false_iff in H. destruct H. destruct (users (whose a)); [auto|discriminate].
  Qed.

  Lemma follows_spec : forall a b, In a (cards_of j) -> In b (cards_of j) -> follows a b = true ->
    before (whose a) (whose b).
  Proof.
    intros a b A B F. destruct (judge_spec _ _ _ J) as [_ [W [_ [_ [Cards _]]]]].
    destruct (Cards _ A) as [_ Ca]. destruct (Cards _ B) as [_ Cb].
    unfold follows in F. destruct (until (whose a)) as [t|] eqn:U; [|discriminate].
    apply andb_true_iff in F. destruct F as [T F]. apply N.leb_le in T.
    assert (Unused : forall k, in_use k = false -> users (whose k) = [] /\ outside (whose k) = false).
    { intros k H. unfold in_use in H. apply orb_false_iff in H. destruct H. destruct (users (whose k)); auto. discriminate. }
    assert (Empty : users (whose a) = [] \/ users (whose b) = [] ->
      (forall starts ends, legal p g starts ends -> apart_in starts ends (whose a) (whose b)) /\
      (forall line, linear_extension p g line -> apart_along line (whose a) (whose b))).
    { intros E. split; intros; intros x y X Y; destruct E as [E|E]; rewrite E in *; contradiction. }
    split; [exists t; auto|].
    apply orb_true_iff in F. destruct F as [F|F]; [apply orb_true_iff in F; destruct F as [F|F]|].
    - apply negb_true_iff, Unused in F. destruct F as [E O]. split; [rewrite O; discriminate|]. apply Empty. auto.
    - apply negb_true_iff, Unused in F. destruct F as [E O]. split; [auto|]. apply Empty. auto.
    - split.
      + intros O. unfold ordered_b in F. apply andb_true_iff in F. destruct F as [F _].
        apply (freed_spec p (nodes_of c) _ Ca) in F. destruct F as [_ F]. rewrite O in F. discriminate.
      + assert (Or : ordered p g (whose a) (whose b)).
        { destruct (ordered_spec p (nodes_of c) W a b Ca Cb F) as [M|M]; auto. apply marker_rule_orders. auto. }
        split; intros.
        * intros x y X Y. eapply completed_in_runs; eauto.
        * intros x y X Y. eapply completed_in_extensions; eauto.
  Qed.

  Theorem places_sound : forall places, check_places j places = true -> nothing_aliased places.
  Proof.
    intros places H. unfold check_places in H. destruct (judge_spec _ _ _ J) as [Of [W [_ [_ [Cards [All _]]]]]].
    destruct (all_some _ (cards_of j)) as [own|] eqn:OwnS; [|discriminate].
    destruct (all_some _ (standing_of _)) as [theirs|] eqn:Theirs; [|discriminate].
    destruct (all_some_in _ _ _ _ _ OwnS) as [OwnIn _]. destruct (all_some_in _ _ _ _ _ Theirs) as [TheirsIn _].
    assert (S : StronglySorted (fun x y => is_true (ByStart.leb x y)) (SpotSort.sort (own ++ theirs))).
    { apply SpotSort.StronglySorted_sort. intros x y z. unfold is_true, ByStart.leb. rewrite !N.leb_le. lia. }
    pose proof (sweep_spec _ S H) as Sweep.
    assert (Perm : forall s, In s (own ++ theirs) -> In s (SpotSort.sort (own ++ theirs))).
    { intros s. apply Permutation_in. apply SpotSort.Permuted_sort. }
    assert (Spot_ : forall a, In a (lives_of c) -> exists k, In k (cards_of j) /\ whose k = a /\
      In (Spot (place_in places (id a)) (place_in places (id a) + occupied a) (Own k)) (own ++ theirs)).
    { intros a A. destruct (All _ A) as [k [K E]]. exists k. split; [auto|split; [auto|]].
      destruct (OwnIn _ K) as [s [Es Is]]. unfold spot_of in Es. unfold place_in.
      rewrite E in Es. destruct (Map.find (id a) places); [|discriminate]. injection Es as <-.
      apply in_or_app. auto. }
    split.
    - intros a b A B N [x [[Xa Xa'] [Xb Xb']]].
      destruct (Spot_ _ A) as [ka [Ka [Ea Sa]]]. destruct (Spot_ _ B) as [kb [Kb [Eb Sb]]].
      destruct (Sweep _ _ (Perm _ Sa) (Perm _ Sb)) as [E|E].
      + split; simpl; lia.
      + injection E; intros; subst. congruence.
      + assert (F : follows ka kb || follows kb ka = true).
        { destruct E as [E|E]; unfold pair_ok in E; simpl in E; auto. rewrite orb_comm. auto. }
        subst a b. apply orb_true_iff in F. destruct F as [F|F]; [left|right]; apply follows_spec; auto.
    - intros a s A St x [Xa Xa'] [Xs Xs'].
      destruct (Spot_ _ A) as [ka [Ka [Ea Sa]]].
      rewrite Of in TheirsIn. destruct (TheirsIn _ St) as [t [Et It]]. unfold spot_of in Et.
      unfold place_in in Xs, Xs'. destruct (Map.find (guest_id s) places) as [q|]; [|discriminate]. injection Et as <-.
      subst a. apply clear_of_guest_spec.
      destruct (Sweep _ _ (Perm _ Sa) (Perm _ (in_or_app _ _ _ (or_intror It)))) as [E|[E|E]].
      + split; simpl; lia.
      + discriminate.
      + exact E.
      + exact E.
  Qed.

  (** ** (2) *)

  Lemma chosen_spec : forall l taken r, chosen_cards (by_id j) taken l = Some r ->
    (forall k, In k r -> In k (cards_of j) /\ works_b k = true /\ Map.mem (id (whose k)) taken = false) /\
    NoDup (List.map id (List.map whose r)).
  Proof.
    destruct (judge_spec _ _ _ J) as [_ [_ [_ [_ [_ [_ [_ By]]]]]]].
    induction l as [|[b n] l IH]; intros taken r H; simpl in H.
    - injection H as <-. split; [intros ? []|constructor].
    - destruct (Map.mem b taken) eqn:M; [discriminate|].
      destruct (Map.find b (by_id j)) as [k|] eqn:F; [|discriminate].
      destruct (chosen_cards _ _ l) as [s|] eqn:S; [|discriminate].
      destruct ((occupied (whose k) =? n) && works_b k && Pos.eqb (id (whose k)) b) eqn:C; [|discriminate].
      injection H as <-. apply andb_true_iff in C. destruct C as [C E]. apply andb_true_iff in C. destruct C as [_ Wk].
      apply Pos.eqb_eq in E. destruct (IH _ _ S) as [A D]. destruct (By _ _ F) as [K _]. split.
      + intros k' [->|I].
        * rewrite E. auto.
        * destruct (A _ I) as [X [Y Z]]. split; [auto|split; [auto|]].
          rewrite Map.mem_find in *. destruct (Pos.eq_dec (id (whose k')) b) as [Q|Q].
          -- rewrite Q, Map.gss in Z. discriminate.
          -- rewrite Map.gso in Z by auto. auto.
      + simpl. constructor; auto. intros I. apply in_map_iff in I. destruct I as [b' [E' I]].
        apply in_map_iff in I. destruct I as [k' [<- I]]. destruct (A _ I) as [_ [_ Z]].
        rewrite E', E, Map.mem_find, Map.gss in Z. discriminate.
  Qed.

  Lemma weight_of_cards : forall l, weight (List.map whose l) = fold_right (fun k sum => occupied (whose k) + sum) 0 l.
  Proof. unfold weight. induction l as [|k l IH]; simpl; auto. rewrite IH. auto. Qed.

  (** The chosen blocks are an antichain that weighs what is said. *)
  Lemma lower_sound : forall cert, check_lower p j cert = true ->
    exists l, antichain p g (lives_of c) l /\ weight l = minimum cert.
  Proof.
    intros cert H. unfold check_lower in H. destruct (judge_spec _ _ _ J) as [_ [W [_ [_ [Cards _]]]]].
    destruct (chosen_cards _ _ _) as [l|] eqn:L; [|discriminate].
    destruct (threshold_clocks _ _ _ _) as [ts|]; [|discriminate].
    apply andb_true_iff in H. destruct H as [H _]. apply andb_true_iff in H. destruct H as [Sum Apart].
    apply N.eqb_eq in Sum. rewrite forallb_forall in Apart.
    destruct (chosen_spec _ _ _ L) as [In_ Once].
    exists (List.map whose l). split; [split; [auto|split]|].
    - intros b B. apply in_map_iff in B. destruct B as [k [<- K]]. destruct (In_ _ K) as [Kc [Wk _]].
      destruct (Cards _ Kc) as [Lk Ck]. split; auto. apply (works_spec p (nodes_of c) W _ Ck). auto.
    - intros a b A B _ P. apply in_map_iff in A. destruct A as [ka [<- A]]. apply in_map_iff in B. destruct B as [kb [<- B]].
      destruct (In_ _ A) as [Ac _]. destruct (In_ _ B) as [Bc _].
      destruct (Cards _ Ac) as [_ Ca]. destruct (Cards _ Bc) as [_ Cb].
      apply (precedes_spec p (nodes_of c) W ka kb Ca Cb) in P. unfold precedes_b in P.
      apply andb_true_iff in P. destruct P as [F N].
      pose proof (Apart _ A) as Sa. pose proof (Apart _ B) as Sb. unfold stands_apart in Sa, Sb.
      apply andb_true_iff in Sa. destruct Sa as [_ Sa]. apply andb_true_iff in Sb. destruct Sb as [Sb _].
      apply existsb_exists in Sb. destruct Sb as [t [T K]]. apply andb_true_iff in K. destruct K as [_ K].
      rewrite forallb_forall in Sa. specialize (Sa _ T). rewrite F in Sa. simpl in Sa. apply negb_true_iff in Sa.
      assert (Q : within (needs ka) (snd t) = true).
      { apply within_spec. intros d. rewrite within_spec in N, K. specialize (N d). specialize (K d). lia. }
      pose proof (eq_trans (eq_sym Q) Sa) as Wrong. discriminate.
    - rewrite weight_of_cards. auto.
  Qed.

  Lemma give_all : forall k ids (m : map N) b, NoDup ids ->
    match Map.find b (fold_left (give k) ids m) with Some n => n | None => 0 end =
    (if existsb (fun a => Pos.eqb a b) ids then k else 0) + match Map.find b m with Some n => n | None => 0 end.
  Proof.
    induction ids as [|a ids IH]; intros m b D; simpl; [lia|].
    inversion D as [|? ? N D']; subst. rewrite IH by auto. unfold give.
    destruct (Pos.eqb_spec a b) as [->|Ne]; simpl.
    - rewrite Map.gss. destruct (existsb (fun a => Pos.eqb a b) ids) eqn:E; [|lia].
      exfalso. apply N. apply existsb_exists in E. destruct E as [x [I E]]. apply Pos.eqb_eq in E. subst. auto.
    - rewrite Map.gso by auto. auto.
  Qed.

  Lemma chain_ok_tail : forall a l, chain_ok (a :: l) = true -> chain_ok l = true.
  Proof. intros a [|b l] H; auto. cbn [chain_ok] in H. apply andb_true_iff in H. tauto. Qed.

  Lemma once_spec : forall l named, once named l = true ->
    NoDup (List.map (fun k => id (whose k)) l) /\ forall k, In k l -> Map.mem (id (whose k)) named = false.
  Proof.
    induction l as [|a l IH]; intros named H; simpl in *; [split; [constructor|intros ? []]|].
    apply andb_true_iff in H. destruct H as [N H]. apply negb_true_iff in N. destruct (IH _ H) as [D F].
    split; [constructor; auto|].
    - intros I. apply in_map_iff in I. destruct I as [b [E B]]. specialize (F _ B).
      rewrite E, Map.mem_find, Map.gss in F. discriminate.
    - intros k [->|K]; auto. specialize (F _ K). rewrite Map.mem_find in *.
      destruct (Pos.eq_dec (id (whose k)) (id (whose a))) as [E|E].
      + rewrite E, Map.gss in F. discriminate.
      + rewrite Map.gso in F by auto. auto.
  Qed.

  Lemma chain_ok_sorted : forall l, (forall k, In k l -> In k (cards_of j)) -> chain_ok l = true ->
    Sorted (precedes p g) (List.map whose l).
  Proof.
    destruct (judge_spec _ _ _ J) as [_ [W [_ [_ [Cards _]]]]].
    induction l as [|a l IH]; intros In_ H; simpl; constructor.
    - apply IH; [intros k K; apply In_; simpl; auto|]. eapply chain_ok_tail; eauto.
    - destruct l as [|b l]; simpl; constructor. cbn [chain_ok] in H.
      apply andb_true_iff in H. destruct H as [P _].
      apply (precedes_spec p (nodes_of c) W a b); auto; apply Cards; apply In_; simpl; auto.
  Qed.

  Lemma in_chain_ids : forall b k ks,
    in_chain b (k, List.map whose ks) = existsb (fun a => Pos.eqb a (id b)) (List.map (fun k => id (whose k)) ks).
  Proof. intros b k ks. unfold in_chain. simpl. induction ks as [|x ks IH]; simpl; auto. rewrite IH. auto. Qed.

  (** The chains are a cover of as much memory as is said. *)
  Lemma upper_sound : forall cert, check_upper j cert = true ->
    exists l, covers p g (lives_of c) l /\ cover_bytes l = minimum cert.
  Proof.
    intros cert H. unfold check_upper in H.
    destruct (judge_spec _ _ _ J) as [_ [W [_ [_ [Cards [All [Once By]]]]]]].
    destruct (all_some _ _) as [l|] eqn:L; [|discriminate]. destruct (all_some_in _ _ _ _ _ L) as [_ From].
    apply andb_true_iff in H. destruct H as [H Sum]. apply andb_true_iff in H. destruct H as [Ok Given].
    apply N.eqb_eq in Sum. rewrite forallb_forall in Ok, Given.
    assert (Ok' : forall chain, In chain l -> chain_ok (snd chain) = true /\ NoDup (List.map (fun k => id (whose k)) (snd chain))).
    { intros chain I. specialize (Ok _ I). apply andb_true_iff in Ok. destruct Ok as [C D]. split; [exact C|].
      exact (proj1 (once_spec _ _ D)). }
    assert (In_ : forall chain, In chain l -> forall k, In k (snd chain) -> In k (cards_of j)).
    { intros chain I k K. destruct (From _ I) as [[n ids] [_ E]]. unfold chain_cards in E. simpl in E.
      destruct (all_some (fun b => Map.find b (by_id j)) ids) as [r|] eqn:R; [|discriminate]. injection E as <-.
      destruct (all_some_in _ _ _ _ _ R) as [_ F]. destruct (F _ K) as [b [_ Fb]]. apply (By _ _ Fb). }
    exists (List.map (fun chain => (fst chain, List.map whose (snd chain))) l). split; [split; [|split]|].
    - intros chain I. apply in_map_iff in I. destruct I as [ch [<- I]]. simpl. split.
      + apply chain_ok_sorted; [eauto|]. apply Ok'. auto.
      + intros b B. apply in_map_iff in B. destruct B as [k [<- K]]. apply Cards. eauto.
    - intros b B Wb. destruct (All _ B) as [k [K <-]]. destruct (Cards _ K) as [_ Ck].
      specialize (Given _ K). apply (works_spec p (nodes_of c) W _ Ck) in Wb. rewrite Wb in Given. simpl in Given.
      apply N.eqb_eq in Given. rewrite <- Given. clear - In_ Ok' J. unfold given.
      induction l as [|ch l IH]; simpl; [rewrite Map.gempty; auto|].
      rewrite give_all.
      + rewrite in_chain_ids. rewrite IH.
        * destruct (existsb _ _); auto.
        * intros x X. apply Ok'. simpl; auto.
        * intros x X. apply In_. simpl; auto.
      + apply Ok'. simpl; auto.
    - auto.
    - rewrite <- Sum. clear. unfold cover_bytes. induction l as [|ch l IH]; simpl; auto. rewrite IH. auto.
  Qed.

  Theorem minimum_sound : forall cert, check_lower p j cert = true -> check_upper j cert = true ->
    least_memory p g (lives_of c) (minimum cert).
  Proof.
    intros cert L U. destruct (lower_sound _ L) as [chosen [A Wa]]. destruct (upper_sound _ U) as [cov [C Wc]].
    rewrite <- Wa. eapply antichain_and_cover; eauto. congruence.
  Qed.
End Theorems.

(** (3) What the check accepts is true: no two blocks of the capture are aliased where they lie, and the minimum is the
    least memory that the blocks need. *)
Theorem check_sound : forall p journal places cert, check p journal places cert = true ->
  nothing_aliased p journal places /\
  least_memory p (graph_of journal) (lives_of (read journal)) (minimum cert).
Proof.
  intros p journal places cert H. unfold check in H.
  destruct (judge p journal) as [j|] eqn:J; [|discriminate].
  apply andb_true_iff in H. destruct H as [H U]. apply andb_true_iff in H. destruct H as [P L].
  split.
  - eapply places_sound; eauto.
  - change (graph_of journal) with (nodes_of (read journal)). eapply minimum_sound; eauto.
Qed.
