(** Why the bound from below is no artefact of the rule: blocks of which neither precedes the other can really be in use
    at the same time, as far as anyone knows when the later one is handed out. *)

From Coq Require Import List Arith NArith PArith Lia Bool FMapPositive.
From Regraph Require Import Order Capture Memory Checker.
Import ListNotations.
Open Scope N_scope.

Lemma programmatic_full : forall p g t, proves p Programmatic = Some Full -> taken_for_full p g t = true.
Proof. intros p g t H. destruct p; simpl in *; auto; discriminate. Qed.

Section Meeting.
  Variable p : policy.
  Variable g : graph.
  Hypothesis W : well_formed g.
  (** The terminals of a stream, and the node that it launches next. *)
  Variable terminals : list node.
  Variable next : node.
  Let cl := read_clocks p g.
  (** Nodes of the graph are those that have clocks. *)
  Hypothesis Later : forall v i, Map.find v (infos cl) = Some i -> (v < next)%positive.
  Hypothesis Inside : forall t, In t terminals -> exists i, Map.find t (infos cl) = Some i.

  (** The edges that lead to it: what they are taken for. *)
  Definition launch : list (node * kind) :=
    List.map (fun t => (t, if taken_for_full p g t then FullEdge else Programmatic)) terminals.

  Definition gone_on : graph := g ++ [(next, launch)].

  Lemma edge_infos : forall u k v, edge g u k v -> exists i, Map.find u (infos cl) = Some i.
  Proof.
    intros u k v [deps [I J]]. destruct (good_read p g W) as [m [_ [T A]]].
    apply T. specialize (A _ _ I). destruct (numbered_in _ _ _ _ W I) as [_ D]. specialize (D _ _ J). lia.
  Qed.

  Definition done (v : node) : bool :=
    match Map.find v (infos cl), known_clock p cl (early_nodes g) terminals with
    | Some i, Some k => position i <=? get (chain i) k
    | _, _ => false
    end.

  Definition started (v : node) : bool :=
    match Map.find v (infos cl) with
    | Some i => existsb (fun t => match Map.find t (infos cl) with
                                  | Some j => position i <=? get (chain i) (reached j) | None => false end) terminals
    | None => false
    end.

  Lemma known_clock_some : forall l, (forall t, In t l -> exists i, Map.find t (infos cl) = Some i) ->
    exists k, known_clock p cl (early_nodes g) l = Some k.
  Proof.
    induction l as [|t l IH]; intros H; simpl; [eauto|].
    destruct (H t) as [i F]; [simpl; auto|]. rewrite F. destruct IH as [k ->]; [intros u U; apply H; simpl; auto|]. eauto.
  Qed.

  Lemma done_spec : forall v i, Map.find v (infos cl) = Some i -> (done v = true <-> known p g terminals v).
  Proof.
    intros v i F. unfold done. rewrite F. destruct (known_clock_some terminals Inside) as [k K]. rewrite K.
    rewrite N.leb_le. symmetry. exact (known_spec p g W _ _ K _ _ F).
  Qed.

  Lemma started_spec : forall v i, Map.find v (infos cl) = Some i ->
    (started v = true <-> exists t, In t terminals /\ reach p g v t).
  Proof.
    intros v i F. unfold started. rewrite F. rewrite existsb_exists. split.
    - intros [t [I H]]. exists t. split; auto. destruct (Map.find t (infos cl)) as [j|] eqn:Ft; [|discriminate].
      apply N.leb_le in H. exact (proj2 (clocks_reach p g W _ _ _ _ F Ft) H).
    - intros [t [I R]]. exists t. split; auto. destruct (Inside t I) as [j Ft]. rewrite Ft. apply N.leb_le.
      exact (proj1 (clocks_reach p g W _ _ _ _ F Ft) R).
  Qed.

  Lemma done_started : forall v, done v = true -> started v = true.
  Proof.
    intros v D. destruct (Map.find v (infos cl)) as [i|] eqn:F.
    - apply (done_spec _ _ F) in D. apply (started_spec _ _ F). destruct D as [t [I [C|[_ R]]]]; exists t; split; auto.
      apply completed_reach; auto.
    - unfold done in D. rewrite F in D. discriminate.
  Qed.

  (** All that has to, starts before the next node; of that all that has to is completed before; the rest comes after. *)
  Definition starts_at (v : node) : N :=
    if Pos.eqb v next then 2 * N.pos next + 1 else if started v then 2 * N.pos v else 4 * N.pos next + 2 * N.pos v.
  Definition ends_at (v : node) : N :=
    if Pos.eqb v next then 10 * N.pos next else if done v then 2 * N.pos v + 1 else 4 * N.pos next + 2 * N.pos v + 1.

  Lemma meeting_is_legal : legal p gone_on starts_at ends_at.
  Proof.
    split.
    - intros v. unfold starts_at, ends_at. destruct (Pos.eqb_spec v next); [lia|].
      pose proof (done_started v). destruct (done v); [rewrite H by auto; lia|]. destruct (started v); lia.
    - intros u k v [deps [I J]]. apply in_app_or in I. destruct I as [I|[I|[]]].
      + assert (E : edge g u k v) by (exists deps; auto).
        destruct (edge_infos _ _ _ E) as [i Fu]. destruct (clocks_known p g W _ _ I) as [j Fv]. fold cl in Fv.
        pose proof (Later _ _ Fv) as Lv. pose proof (edge_up _ _ _ _ W E) as Lu.
        unfold starts_at, ends_at.
        replace (Pos.eqb u next) with false by (symmetry; apply Pos.eqb_neq; lia).
        replace (Pos.eqb v next) with false by (symmetry; apply Pos.eqb_neq; lia).
        destruct (proves p k) as [s|] eqn:P; auto.
        assert (Step : reach p g u v) by (eapply reach_step; [apply reach_self|eauto|eauto]).
        assert (S : started v = true -> started u = true).
        { intros H. apply (started_spec _ _ Fv) in H. apply (started_spec _ _ Fu). destruct H as [t [T R]].
          exists t. split; auto. eapply reach_trans; eauto. }
        assert (D : done v = true -> done u = true).
        { intros H. apply (done_spec _ _ Fv) in H. apply (done_spec _ _ Fu). eapply known_down; eauto. }
        destruct s.
        * assert (F : started v = true -> done u = true).
          { intros H. apply (started_spec _ _ Fv) in H. apply (done_spec _ _ Fu). destruct H as [t [T R]].
            exists t. split; auto. left. eapply completed_then; [|exact R].
            eapply completed_full; [apply reach_self|eauto|auto]. }
          destruct (started v); [rewrite F by auto; lia|]. destruct (done u); lia.
        * split.
          -- destruct (started v); [rewrite S by auto; lia|]. destruct (started u); lia.
          -- destruct (done v); [rewrite D by auto; lia|]. destruct (done u); lia.
      + injection I; intros; subst v deps. unfold launch in J. apply in_map_iff in J. destruct J as [t [E T]].
        injection E; intros <- <-. destruct (Inside t T) as [i Ft]. pose proof (Later _ _ Ft) as L.
        assert (St : started t = true).
        { apply (started_spec _ _ Ft). exists t. split; auto. apply reach_self. }
        unfold starts_at, ends_at. rewrite Pos.eqb_refl.
        replace (Pos.eqb t next) with false by (symmetry; apply Pos.eqb_neq; lia). rewrite St.
        destruct (taken_for_full p g t) eqn:Full_.
        * assert (D : done t = true).
          { apply (done_spec _ _ Ft). exists t. split; auto. right. split; auto. apply reach_self. }
          rewrite D. change (proves p FullEdge) with (Some Full). cbv iota. lia.
        * destruct (proves p Programmatic) as [[]|] eqn:P; auto.
          -- rewrite (programmatic_full p g t P) in Full_. discriminate.
          -- destruct (done t); lia.
  Qed.

  (** What is not in K need not be completed: in some legal run the stream's next node starts before it is. *)
  Lemma unknown_may_meet : forall x i, Map.find x (infos cl) = Some i -> ~ known p g terminals x ->
    exists starts ends, legal p gone_on starts ends /\ starts next < ends x.
  Proof.
    intros x i F N. exists starts_at, ends_at. split; [apply meeting_is_legal|].
    pose proof (Later _ _ F). unfold starts_at, ends_at. rewrite Pos.eqb_refl.
    replace (Pos.eqb x next) with false by (symmetry; apply Pos.eqb_neq; lia).
    destruct (done x) eqn:D; [|lia]. apply (done_spec _ _ F) in D. contradiction.
  Qed.
End Meeting.

(** Blocks of which one does not precede the other: of what the one needs to have completed there is a node that some
    legal run has not completed when the stream of the other launches its next node. The graph is the captured one and
    that node, behind the allocation point. (A block that was not freed is in use to the end in any case.) *)
Theorem unordered_blocks_may_meet : forall p journal j, judge p journal = Some j ->
  let g := nodes_of (read journal) in
  forall a b, In a (lives_of (read journal)) -> In b (lives_of (read journal)) ->
  freed a -> ~ precedes p g a b ->
  exists x next, needed a x /\ exists starts ends, legal p (gone_on p g (point b) next) starts ends /\ starts next < ends x.
Proof.
  intros p journal j J g a b A B Freed N.
  destruct (judge_spec _ _ _ J) as [_ [W [_ [_ [Cards [All _]]]]]].
  destruct (All _ A) as [ka [Ka <-]]. destruct (All _ B) as [kb [Kb <-]].
  destruct (Cards _ Ka) as [_ Ca]. destruct (Cards _ Kb) as [_ Cb].
  destruct (card_parts _ _ _ Ca) as [_ [_ [_ [Needs _]]]]. destruct (card_parts _ _ _ Cb) as [_ [_ [_ [_ [Knows _]]]]].
  assert (P : within (needs ka) (knows kb) = false).
  { destruct (within (needs ka) (knows kb)) eqn:E; auto. exfalso. apply N.
    apply (precedes_spec p g W ka kb Ca Cb). unfold precedes_b. rewrite E.
    apply (freed_spec p g _ Ca) in Freed. rewrite Freed. auto. }
  apply within_not in P. destruct P as [d L].
  destruct (clock_of_from p g _ _ d Needs) as [x [i [X [F [C E]]]]]; [lia|].
  destruct (good_read p g W) as [m [G _]].
  exists x, m. split; [exact X|].
  eapply unknown_may_meet; eauto.
  - intros v k Fv. eapply (domain _ _ _ _ G); eauto.
  - clear - Knows. intros t. revert Knows. generalize (knows kb).
    induction (point (whose kb)) as [|u l IH]; intros k K I; [destruct I|]. simpl in K.
    destruct (Map.find u _) as [iu|] eqn:Fu; [|discriminate].
    destruct (known_clock _ _ _ l) as [r|]; [|discriminate].
    destruct I as [->|I]; eauto.
  - intros K. apply (proj1 (known_spec p g W _ _ Knows _ _ F)) in K. subst d. lia.
Qed.
