(** That the possible users are what they are called: whatever a stream launches while it uses a block is one of them. *)

From Coq Require Import List Arith NArith PArith Lia Bool FMapPositive.
From Regraph Require Import Order Capture.
Import ListNotations.
Open Scope N_scope.

Section Uses.
  Variable g : graph.
  Hypothesis W : well_formed g.
  Let deps := deps_map g.
  Let any := any_clocks g.
  Notation "x ~> y" := (reach Lag g x y) (at level 70).

  Lemma deps_map_in : forall v d, Map.find v deps = Some d -> In (v, d) g.
  Proof.
    unfold deps, deps_map. intros v d.
    assert (H : forall l m, Map.find v (fold_left (fun m it => Map.add (fst it) (snd it) m) l m) = Some d ->
      In (v, d) l \/ Map.find v m = Some d).
    { induction l as [|[w e] l IH]; intros m H; simpl in *; auto.
      destruct (IH _ H) as [I|F]; auto. destruct (Pos.eq_dec v w) as [->|N].
      - rewrite Map.gss in F. injection F as ->. auto.
      - rewrite Map.gso in F by auto. auto. }
    intros F. destruct (H _ _ F) as [I|E]; auto. rewrite Map.gempty in E. discriminate.
  Qed.

  Lemma dependency : forall v u q ds, Map.find v deps = Some ds -> In (u, q) ds -> u ~> v.
  Proof.
    intros v u q ds F I. apply deps_map_in in F.
    assert (S : exists s, proves Lag q = Some s) by (destruct q; simpl; eauto). destruct S as [s S].
    eapply reach_step; [apply reach_self|exists ds; split; eauto|exact S].
  Qed.

  Lemma behind_any_reach : forall u v, behind_any any u v = true -> u ~> v.
  Proof.
    intros u v H. unfold behind_any in H.
    destruct (Map.find u (infos any)) as [i|] eqn:F; [|discriminate].
    destruct (Map.find v (infos any)) as [j|] eqn:E; [|discriminate].
    apply N.leb_le in H. exact (proj2 (clocks_reach Lag g W _ _ _ _ F E) H).
  Qed.

  Lemma reach_behind_any : forall u v, u ~> v -> u <> v -> (exists d, In (v, d) g) -> behind_any any u v = true.
  Proof.
    intros u v R N [d I]. unfold behind_any, any, any_clocks.
    destruct (good_read Lag g W) as [m [_ [T A]]]. specialize (A _ _ I).
    pose proof (reach_up _ _ _ _ W R).
    destruct (T u) as [i F]; [lia|]. destruct (T v) as [j E]; [lia|]. rewrite F, E.
    apply N.leb_le. exact (proj1 (clocks_reach Lag g W _ _ _ _ F E) R).
  Qed.

  (** What a step of a walk keeps, the walk keeps. *)
  Lemma walk_keeps : forall P, (forall w, P w -> P (walk_step deps w)) -> forall d w, P w -> P (walk deps d w).
  Proof.
    intros P Step. induction d as [|d IH]; intros [[[|v l] m] f] H; cbn [walk]; auto.
  Qed.

  Lemma walk_finds : forall d l m f v, In v f -> In v (snd (walk deps d (l, m, f))).
  Proof.
    intros d l m f v I. apply (walk_keeps (fun w => In v (snd w))); auto.
    intros [[[|x s] k] h] H; simpl in *; auto. destruct (Map.mem x k); simpl; auto.
  Qed.

  Lemma walk_finds_root : forall d v m, Map.mem v m = false -> In v (snd (walk deps d ([v], m, []))).
  Proof.
    intros d v m N. induction d as [|d IH]; cbn [walk].
    - unfold walk_step. rewrite N. simpl. auto.
    - destruct (walk deps d ([v], m, [])) as [[l k] f]. apply walk_finds. exact IH.
  Qed.

  Lemma walk_behind : forall d nodes m x, In x (snd (walk deps d (nodes, m, []))) -> exists r, In r nodes /\ x ~> r.
  Proof.
    intros d nodes m x.
    assert (K : forall w, (forall y, In y (fst (fst w)) \/ In y (snd w) -> exists r, In r nodes /\ y ~> r) ->
      forall y, In y (fst (fst (walk_step deps w))) \/ In y (snd (walk_step deps w)) -> exists r, In r nodes /\ y ~> r).
    { intros [[[|v l] k] f] H y J; simpl in *; auto.
      destruct (Map.mem v k); simpl in *; [apply H; tauto|].
      destruct J as [J|[<-|J]]; auto.
      apply in_app_or in J. destruct J as [J|J]; auto.
      destruct (Map.find v deps) as [ds|] eqn:F; [|destruct J].
      apply in_map_iff in J. destruct J as [[u q] [<- J]]. simpl.
      destruct (H v) as [r [R P]]; auto. exists r. split; auto.
      apply reach_trans with v; auto.
      apply (dependency v u q ds); auto. }
    intros I.
    pose proof (walk_keeps (fun w => forall y, In y (fst (fst w)) \/ In y (snd w) -> exists r, In r nodes /\ y ~> r) K
      d (nodes, m, [])) as H. simpl in H. apply H; auto.
    intros y [Y|[]]. exists y. split; auto. apply reach_self.
  Qed.

  Lemma is_in_spec : forall v l, is_in v l = true <-> In v l.
  Proof.
    intros v l. unfold is_in. rewrite existsb_exists. split.
    - intros [x [I E]]. apply Pos.eqb_eq in E. subst. auto.
    - intros I. exists v. split; auto. apply Pos.eqb_refl.
  Qed.

  Lemma all_in_spec : forall a b, all_in a b = true <-> incl a b.
  Proof.
    intros a b. unfold all_in. rewrite forallb_forall. split; intros H v I; apply is_in_spec; auto.
  Qed.

  (** A step that is whole leads on from all that the stream waited for. *)
  Lemma whole_leads_on : forall before nodes m, 
    is_whole deps any before nodes (snd (walk deps 64 (nodes, m, []))) = true ->
    forall t, In t before -> exists u, In u nodes /\ t ~> u.
  Proof.
    intros before nodes m H t I. unfold is_whole in H. apply orb_true_iff in H. destruct H as [H|H].
    - apply orb_true_iff in H. destruct H as [H|H].
      + apply all_in_spec in H. exists t. split; [auto|apply reach_self].
      + apply existsb_exists in H. destruct H as [l [L H]].
        destruct (Map.find l deps) as [ds|] eqn:F; [|discriminate]. apply all_in_spec in H.
        specialize (H _ I). apply in_map_iff in H. destruct H as [[u q] [<- J]]. simpl.
        destruct (walk_behind _ _ _ _ L) as [r [R P]]. exists r. split; auto.
        apply reach_trans with l; auto.
        apply (dependency l u q ds); auto.
    - apply andb_true_iff in H. destruct H as [_ H]. rewrite forallb_forall in H. specialize (H _ I).
      apply existsb_exists in H. destruct H as [u [U B]]. exists u. split; auto. apply behind_any_reach. auto.
  Qed.

  Lemma deps_map_of : forall v d, In (v, d) g -> Map.find v deps = Some d.
  Proof.
    intros v d I.
    assert (H : forall l m, In (v, d) l \/ (exists e, Map.find v m = Some e) ->
      exists e, Map.find v (fold_left (fun m it => Map.add (fst it) (snd it) m) l m) = Some e).
    { induction l as [|[w e] l IH]; intros m J; simpl; [destruct J as [[]|J]; auto|].
      apply IH. destruct J as [[E|J]|[x F]]; auto; right.
      - injection E as -> ->. exists d. apply Map.gss.
      - destruct (Pos.eq_dec v w) as [->|N]; [exists e; apply Map.gss|exists x]. rewrite Map.gso by auto. auto. }
    destruct (H g (Map.empty _) (or_introl I)) as [e F]. fold (deps_map g) in F. fold deps in F.
    rewrite F. f_equal. apply deps_map_in in F. eapply numbered_unique; eauto.
  Qed.

  Lemma walk_marks : forall d nodes m y, Map.mem y (snd (fst (walk deps d (nodes, m, [])))) = true ->
    Map.mem y m = true \/ In y (snd (walk deps d (nodes, m, []))).
  Proof.
    intros d nodes m y.
    pose proof (walk_keeps (fun w => Map.mem y (snd (fst w)) = true -> Map.mem y m = true \/ In y (snd w))) as K.
    apply K; simpl; auto.
    intros [[[|v l] k] f] H M; simpl in *; auto.
    destruct (Map.mem v k); simpl in *; auto.
    rewrite Map.mem_find in M. destruct (Pos.eq_dec y v) as [->|N]; auto.
    rewrite Map.gso in M by auto. rewrite <- Map.mem_find in M. destruct (H M); auto.
  Qed.

  (** These of a walk that is named by what it ends with. *)
  Lemma walk_behind_of : forall d nodes m l k f, walk deps d (nodes, m, []) = (l, k, f) ->
    forall x, In x f -> exists r, In r nodes /\ x ~> r.
  Proof. intros d nodes m l k f E x I. apply (walk_behind d nodes m). rewrite E. exact I. Qed.

  Lemma walk_marks_of : forall d nodes m l k f, walk deps d (nodes, m, []) = (l, k, f) ->
    forall y, Map.mem y k = true -> Map.mem y m = true \/ In y f.
  Proof. intros d nodes m l k f E y. pose proof (walk_marks d nodes m y) as H. rewrite E in H. exact H. Qed.

  Lemma whole_leads_on_of : forall before nodes m l k f, walk deps 64 (nodes, m, []) = (l, k, f) ->
    is_whole deps any before nodes f = true -> forall t, In t before -> exists u, In u nodes /\ t ~> u.
  Proof. intros before nodes m l k f E. pose proof (whole_leads_on before nodes m) as H. rewrite E in H. exact H. Qed.

  Definition falling (l : list gain) : Prop :=
    forall a x b, l = a ++ x :: b -> forall y, In y b -> at_look y <= at_look x.

  Lemma gained_in_has : forall after upto l, falling l -> forall x, In x l ->
    after < at_look x -> at_look x <= upto -> In x (gained_in after upto l).
  Proof.
    induction l as [|y l IH]; intros Fa x I A U; [destruct I|]. cbn [gained_in].
    assert (Fl : falling l).
    { intros a z b E. apply (Fa (y :: a) z b). simpl. rewrite E. auto. }
    destruct I as [->|I].
    - destruct (at_look x <=? after) eqn:L; [apply N.leb_le in L; lia|].
      apply N.leb_le in U. rewrite U. simpl. auto.
    - pose proof (Fa [] y l eq_refl x I).
      destruct (at_look y <=? after) eqn:L; [apply N.leb_le in L; lia|].
      destruct (at_look y <=? upto); simpl; auto.
  Qed.

  Local Opaque walk.

  (** What holds before the node [n] comes. *)
  Record fine (n : positive) (st : state) : Prop := {
    seen_old : forall v t, Map.find v (seen st) = Some t -> (v < n)%positive;
    behind_old : forall s v, Map.mem v (behind (sight_of (sights st) s)) = true -> (v < n)%positive;
    looked_old : forall s, looked (sight_of (sights st) s) <= time st;
    gains_old : forall s x, In x (gains (sight_of (sights st) s)) -> at_look x <= time st;
    gains_fall : forall s, falling (gains (sight_of (sights st) s));
    lives_old : forall b it, Map.find b (lives st) = Some it -> allocated it <= time st;
    leads_on : forall b it, Map.find b (lives st) = Some it ->
      broken_at (sight_of (sights st) (own it)) <= allocated it ->
      forall t, In t (waited it) -> exists u, In u (now (sight_of (sights st) (own it))) /\ t ~> u
  }.

  Lemma sight_of_add : forall m s t it, sight_of (Map.add s it m) t = if Pos.eq_dec t s then it else sight_of m t.
  Proof.
    intros m s t it. unfold sight_of. destruct (Pos.eq_dec t s) as [->|N]; [rewrite Map.gss|rewrite Map.gso by auto]; auto.
  Qed.

  Lemma fine_look : forall n st s (nodes : list node), fine n st -> (forall v, In v nodes -> (v < n)%positive) ->
    fine n (step deps any st (Terminals s nodes)).
  Proof.
    intros n st s nodes G Old. cbn [step]. unfold look. cbn [time seen sights lives standing over sound].
    destruct (walk deps 64 (nodes, behind (sight_of (sights st) s), [])) as [[stack marks] fresh] eqn:Wk.
    pose proof (walk_behind_of _ _ _ _ _ _ Wk) as Behind.
    pose proof (walk_marks_of _ _ _ _ _ _ Wk) as Marks.
    pose proof (whole_leads_on_of (now (sight_of (sights st) s)) _ _ _ _ _ Wk) as Leads.
    clear Wk.
    assert (Fresh : forall x, In x fresh -> (x < n)%positive).
    { intros x I. destruct (Behind x I) as [r [R P]]. apply (reach_up _ _ _ _ W) in P. specialize (Old _ R). lia. }
    pose proof (looked_old _ _ G) as LO.
    constructor; cbn [time seen sights lives standing over sound].
    - intros v t F.
      assert (K : forall l m, Map.find v (fold_left (fun m v => if Map.mem v m then m else Map.add v (N.succ (time st)) m) l m)
        = Some t -> In v l \/ Map.find v m = Some t).
      { induction l as [|x l IH]; intros m H; simpl in *; auto. destruct (IH _ H) as [I|E]; auto.
        destruct (Map.mem x m); auto. destruct (Pos.eq_dec v x) as [->|N]; auto. rewrite Map.gso in E by auto. auto. }
      destruct (K _ _ F) as [I|E]; [apply Fresh; auto|eapply seen_old; eauto].
    - intros t v M. rewrite sight_of_add in M. destruct (Pos.eq_dec t s) as [->|N]; [|eapply behind_old; eauto].
      cbn [behind] in M. destruct (Marks _ M); [eapply behind_old; eauto|apply Fresh; auto].
    - intros t. rewrite sight_of_add. destruct (Pos.eq_dec t s); cbn [looked]; [lia|]. specialize (LO t). lia.
    - intros t x I. rewrite sight_of_add in I. destruct (Pos.eq_dec t s); [|pose proof (gains_old _ _ G _ _ I); lia].
      cbn [gains] in I. apply in_app_or in I. destruct I as [I|I]; [|pose proof (gains_old _ _ G _ _ I); lia].
      apply in_map_iff in I. destruct I as [v [<- _]]. cbn [at_look]. lia.
    - intros t. rewrite sight_of_add. destruct (Pos.eq_dec t s); [|apply (gains_fall _ _ G)]. cbn [gains].
      intros a x b E y Y.
      assert (All : forall z, In z (List.map (fun v => Gain v (N.succ (time st)) (looked (sight_of (sights st) s))
        (match Map.find v (fold_left (fun m v => if Map.mem v m then m else Map.add v (N.succ (time st)) m) fresh (seen st))
         with Some first => first | None => N.succ (time st) end)
        (if is_whole deps any (now (sight_of (sights st) s)) nodes fresh then broken_at (sight_of (sights st) s) else N.succ (time st))
        (if is_whole deps any (now (sight_of (sights st) s)) nodes fresh then broken_now (sight_of (sights st) s) else [])) fresh)
        -> at_look z = N.succ (time st)).
      { intros z I. apply in_map_iff in I. destruct I as [v [<- _]]. auto. }
      revert E All. generalize (List.map (fun v => Gain v (N.succ (time st)) (looked (sight_of (sights st) s))
        (match Map.find v (fold_left (fun m v => if Map.mem v m then m else Map.add v (N.succ (time st)) m) fresh (seen st))
         with Some first => first | None => N.succ (time st) end)
        (if is_whole deps any (now (sight_of (sights st) s)) nodes fresh then broken_at (sight_of (sights st) s) else N.succ (time st))
        (if is_whole deps any (now (sight_of (sights st) s)) nodes fresh then broken_now (sight_of (sights st) s) else [])) fresh).
      intros new E All. revert a E. induction new as [|z new IH]; intros a E.
      + exact (gains_fall _ _ G s a x b E y Y).
      + destruct a as [|a0 a]; simpl in E; injection E; intros E' ->.
        * rewrite (All x) by (simpl; auto). rewrite <- E' in Y. apply in_app_or in Y. destruct Y as [Y|Y].
          -- rewrite (All y) by (simpl; auto). lia.
          -- pose proof (gains_old _ _ G _ _ Y). lia.
        * apply IH with a; auto. intros q Q. apply All. simpl. auto.
    - intros b it F. pose proof (lives_old _ _ G _ _ F). lia.
    - intros b it F B t I. rewrite sight_of_add in *. pose proof (lives_old _ _ G _ _ F) as La.
      destruct (Pos.eq_dec (own it) s) as [E|N]; [|exact (leads_on _ _ G _ _ F B t I)].
      cbn [broken_at now] in *.
      destruct (is_whole deps any (now (sight_of (sights st) s)) nodes fresh) eqn:Wh; [|lia].
      rewrite <- E in B. destruct (leads_on _ _ G _ _ F B t I) as [u [U R]]. rewrite E in U.
      destruct (Leads eq_refl u U) as [w [Iw Rw]]. exists w. split; auto. eapply reach_trans; eauto.
  Qed.
End Uses.
