(** Towards the possible users being what they are called: whatever a stream launches is gained by the look behind the
    launch, and is a possible user of each block that the stream still uses when that ends ([end_has]). *)

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

  Lemma walk_finds_root : forall d (v : node) m, Map.mem v m = false -> In v (snd (walk deps d ([v], m, []))).
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

  Lemma walk_finds_root_of : forall d (v : node) m l k f, walk deps d ([v], m, []) = (l, k, f) -> Map.mem v m = false -> In v f.
  Proof. intros d v m l k f E N. assert (H : In v (snd (l, k, f))) by (rewrite <- E; exact (walk_finds_root d v m N)). exact H. Qed.

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

  (** The node that comes next, if an entry is in its place. *)
  Definition next_of (n : positive) (e : entry) : positive := match e with NewNode _ _ => Pos.succ n | _ => n end.

  Definition placed (n : positive) (e : entry) : Prop :=
    match e with NewNode v _ => v = n | Terminals _ nodes => forall v, In v nodes -> (v < n)%positive | _ => True end.

  (** Changes of lives that keep what [fine] asks. *)
  Lemma fine_same : forall n m st st', fine n st -> (n <= m)%positive -> seen st' = seen st -> sights st' = sights st ->
    time st <= time st' ->
    (forall b it, Map.find b (lives st') = Some it ->
      (exists it', Map.find b (lives st) = Some it' /\ own it = own it' /\ allocated it = allocated it' /\ waited it = waited it')
      \/ allocated it <= time st' /\ waited it = now (sight_of (sights st) (own it))) ->
    fine m st'.
  Proof.
    intros n m st st' G L Se Si T Lv. constructor; rewrite ?Se, ?Si.
    - intros v t F. pose proof (seen_old _ _ G _ _ F). lia.
    - intros s v M. pose proof (behind_old _ _ G _ _ M). lia.
    - intros s. pose proof (looked_old _ _ G s). lia.
    - intros s x I. pose proof (gains_old _ _ G _ _ I). lia.
    - apply (gains_fall _ _ G).
    - intros b it F. destruct (Lv _ _ F) as [[it' [F' [_ [A _]]]]|[A _]]; [|auto].
      pose proof (lives_old _ _ G _ _ F'). lia.
    - intros b it F B t I. destruct (Lv _ _ F) as [[it' [F' [O [A Wa]]]]|[_ Wa]].
      + rewrite O in *. rewrite A in B. rewrite Wa in I. exact (leads_on _ _ G _ _ F' B t I).
      + rewrite Wa in I. exists t. split; [auto|apply reach_self].
  Qed.

  Lemma with_live_lives : forall st b f c it, Map.find c (lives (with_live st b f)) = Some it ->
    Map.find c (lives st) = Some it \/ c = b /\ exists it', Map.find b (lives st) = Some it' /\ it = f it'.
  Proof.
    intros st b f c it. unfold with_live. destruct (Map.find b (lives st)) as [o|] eqn:F; simpl; auto.
    intros H. destruct (Pos.eq_dec c b) as [->|N].
    - rewrite Map.gss in H. injection H as <-. right. split; auto. exists o. auto.
    - rewrite Map.gso in H by auto. auto.
  Qed.

  Lemma with_live_same : forall st b f, seen (with_live st b f) = seen st /\ sights (with_live st b f) = sights st /\
    time (with_live st b f) = time st /\ over (with_live st b f) = over st.
  Proof. intros st b f. unfold with_live. destruct (Map.find b (lives st)); auto. Qed.

  Lemma fine_step : forall n st e, fine n st -> placed n e -> fine (next_of n e) (step deps any st e).
  Proof.
    intros n st e G P. destruct e as [v ds|s nodes|b s bytes|b bytes|b|b s|b s|b|b]; cbn [next_of].
    - apply (fine_same n _ st); simpl; auto; try lia. intros b it F. left. exists it. auto.
    - apply fine_look; auto.
    - apply (fine_same n _ st); simpl; auto; try lia. intros c it F.
      destruct (Pos.eq_dec c b) as [->|N].
      + rewrite Map.gss in F. injection F as <-. right. simpl. split; [lia|auto].
      + rewrite Map.gso in F by auto. left. exists it. auto.
    - apply (fine_same n _ st); simpl; auto; try lia. intros c it F. left. exists it. auto.
    - apply (fine_same n _ st); cbn [step]; simpl; destruct (Map.find b (standing st)); simpl; auto; try lia;
        intros c it F; left; exists it; auto.
    - cbn [step]. unfold with_use.
      match goal with |- fine _ (with_live ?st' ?c ?f) => destruct (with_live_same st' c f) as [A [B [C _]]] end.
      apply (fine_same n _ st); rewrite ?A, ?B, ?C; simpl; auto; try lia. intros c it F.
      apply with_live_lives in F. simpl in F. left. destruct F as [F|[-> [it' [F ->]]]]; [exists it|exists it']; auto.
    - cbn [step]. unfold with_use.
      match goal with |- fine _ (with_live ?st' ?c ?f) => destruct (with_live_same st' c f) as [A [B [C _]]] end.
      apply (fine_same n _ st); rewrite ?A, ?B, ?C; simpl; auto; try lia. intros c it F.
      apply with_live_lives in F. simpl in F. left. destruct F as [F|[-> [it' [F ->]]]]; [exists it|exists it']; auto.
    - cbn [step].
      match goal with |- fine _ (with_live ?st' ?c ?f) => destruct (with_live_same st' c f) as [A [B [C _]]] end.
      apply (fine_same n _ st); rewrite ?A, ?B, ?C; simpl; auto; try lia. intros c it F.
      apply with_live_lives in F. simpl in F. left. destruct F as [F|[-> [it' [F ->]]]]; [exists it|exists it']; auto.
    - apply (fine_same n _ st); cbn [step]; simpl; destruct (Map.find b (lives st)); simpl; auto; try lia;
        intros c it F; left; exists it; auto.
      destruct (Pos.eq_dec c b) as [->|N]; [rewrite Map.grs in F; discriminate|rewrite Map.gro in F by auto; auto].
  Qed.

  Lemma fine_start : fine 1 no_state.
  Proof.
    constructor; unfold no_state, sight_of; cbn [seen sights lives time];
      intros; rewrite ?Map.gempty in *; try discriminate; cbn in *; try lia; try contradiction.
    - rewrite Map.mem_find, Map.gempty in H. discriminate.
    - intros a x b E. destruct a; discriminate.
  Qed.

  (** A launch of node [n], behind all that the stream waits for, is gained by the look that follows. *)
  Lemma launch_is_gained : forall (n : node) st s (ds : list (node * kind)), fine n st -> In (n, ds) g ->
    (forall t, In t (now (sight_of (sights st) s)) -> In t (List.map fst ds)) ->
    let st2 := step deps any (step deps any st (NewNode n ds)) (Terminals s [n]) in
    exists x, In x (gains (sight_of (sights st2) s)) /\ gained x = n /\ at_look x = time st2 /\
      since_look x < time st2 /\ first_seen x = time st2 /\ last_break x = broken_at (sight_of (sights st) s).
  Proof.
    intros n st s ds G I All st2. subst st2. cbn [step]. unfold look.
    cbn [time seen sights lives standing over sound].
    assert (New : Map.mem n (behind (sight_of (sights st) s)) = false).
    { destruct (Map.mem n (behind (sight_of (sights st) s))) eqn:M; auto. pose proof (behind_old _ _ G _ _ M). lia. }
    destruct (walk deps 64 ([n], behind (sight_of (sights st) s), [])) as [[stack marks] fresh] eqn:Wk.
    pose proof (walk_finds_root_of _ _ _ _ _ _ Wk New) as Found. cbn [snd time sights] in *.
    assert (Wh : is_whole deps any (now (sight_of (sights st) s)) [n] fresh = true).
    { unfold is_whole. apply orb_true_iff. left. apply orb_true_iff. right. apply existsb_exists. exists n. split; [exact Found|].
      pose proof (deps_map_of _ _ I) as D.
      match goal with |- context [match ?x with _ => _ end] => replace x with (Some ds) by (symmetry; exact D) end.
      apply all_in_spec. intros t Ht. apply All. auto. }
    rewrite Wh. rewrite sight_of_add. destruct (Pos.eq_dec s s) as [_|]; [|congruence]. cbn [gains].
    set (seen' := fold_left (fun (m : map N) (v : positive) => if Map.mem v m then m else Map.add v (N.succ (N.succ (time st))) m)
                            fresh (seen st)).
    assert (S : Map.find n seen' = Some (N.succ (N.succ (time st)))).
    { unfold seen'.
      assert (K : forall l m, (In n l \/ Map.find n m = Some (N.succ (N.succ (time st)))) ->
        (Map.find n m = None \/ Map.find n m = Some (N.succ (N.succ (time st)))) ->
        Map.find n (fold_left (fun m v => if Map.mem v m then m else Map.add v (N.succ (N.succ (time st))) m) l m)
        = Some (N.succ (N.succ (time st)))).
      { induction l as [|y l IH]; intros m [J|J] O; simpl; auto; try contradiction.
        - apply IH.
          + destruct J as [->|J]; auto. right. rewrite Map.mem_find. destruct O as [O|O]; rewrite O; auto. apply Map.gss.
          + destruct (Map.mem y m); auto. destruct (Pos.eq_dec n y) as [->|N]; [rewrite Map.gss|rewrite Map.gso by auto]; auto.
        - apply IH; right; destruct (Map.mem y m); auto; destruct (Pos.eq_dec n y) as [->|N];
            rewrite ?Map.gss, ?Map.gso by auto; auto. }
      apply K; auto. left. destruct (Map.find n (seen st)) eqn:F; auto. pose proof (seen_old _ _ G _ _ F). lia. }
    eexists. split; [apply in_or_app; left; apply in_map_iff; exists n; split; [reflexivity|exact Found]|].
    cbn [gained at_look since_look first_seen last_break].
    match goal with |- context [match ?x with _ => _ end] =>
      replace x with (Some (N.succ (N.succ (time st)))) by (symmetry; exact S) end.
    pose proof (looked_old _ _ G s). repeat split; auto. lia.
  Qed.

  (** A launch on a stream, at a look, and a block as it was then; and the stream's last broken step. *)
  Record target := Target { of_block : block; by_stream : stream; the_node : node; at_time : N; life_of : live; broke : N }.

  (** The block was allocated before, the node comes after its allocation point, and its own stream was not set back
      since. *)
  Definition proper (z : target) : Prop :=
    allocated (life_of z) < at_time z /\ after_all any (waited (life_of z)) (the_node z) = true /\
    (own (life_of z) <> by_stream z \/ broke z <= allocated (life_of z)).

  (** If the stream still uses the block when that ends, or its last use came after the launch, the node is a possible
      user. *)
  Lemma end_has : forall z n st it freed nodes, proper z -> fine n st -> at_time z <= time st ->
    own it = own (life_of z) -> allocated it = allocated (life_of z) -> waited it = waited (life_of z) ->
    (Map.find (by_stream z) (users_on it) = Some None \/
         exists t m, Map.find (by_stream z) (users_on it) = Some (Some (t, m)) /\ at_time z <= t) ->
    (exists x, In x (gains (sight_of (sights st) (by_stream z))) /\ gained x = the_node z /\ at_look x = at_time z /\
          since_look x < at_time z /\ first_seen x = at_time z /\ last_break x = broke z) ->
    In (the_node z) (users (end_of any st (of_block z) it freed nodes)).
  Proof.
    intros z n st it freed nodes [A [Af Own]] G T O Al Wa Us [x [I [Gx [Lx [Sx [Fx Bx]]]]]].
    unfold end_of. cbn [users]. apply in_flat_map.
    assert (Us' : exists used, Map.find (by_stream z) (users_on it) = Some used /\
      at_time z <= match used with Some (t, _) => t | None => time st end).
    { destruct Us as [F|[t [m [F L]]]]; eauto. }
    destruct Us' as [used [F L]]. exists (by_stream z, used). split; [apply Map.elements_correct; auto|].
    apply in_or_app. left. cbn [fst snd]. rewrite <- Gx. apply in_map. apply filter_In. split.
    - apply gained_in_has; [apply (gains_fall _ _ G)|auto|lia|lia].
    - unfold may_use. apply andb_true_iff. split; [apply N.ltb_lt; lia|].
      rewrite Gx, Wa, O, Al, Bx.
      destruct (Pos.eqb_spec (by_stream z) (own (life_of z))) as [E|E]; simpl; auto.
      destruct (allocated (life_of z) <? broke z) eqn:B; auto. apply N.ltb_lt in B. destruct Own; [congruence|lia].
  Qed.
End Uses.
