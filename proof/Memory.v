(** When two blocks may have a byte of memory in common, that their uses are ordered then, and how much memory blocks
    need at least. *)

From Coq Require Import List Arith NArith PArith Lia Bool FMapPositive Sorted Relations.
From Regraph Require Import Order Capture.
Import ListNotations.
Open Scope N_scope.

(** Blocks occupy multiples of 512 bytes. *)
Definition occupied (b : life) : N := (bytes b + 511) / 512 * 512.

(** Freed by the host in the capture, and used by nothing outside it. *)
Definition freed (b : life) : Prop := until b <> None /\ outside b = false.

Section Rules.
  Variable p : policy.
  Variable g : graph.

  (** Whether a programmatic edge leads on from a node. *)
  Definition leads_on (t : node) : bool :=
    existsb (fun it => existsb (fun d => Pos.eqb (fst d) t && match snd d with Programmatic => true | _ => false end)
                               (snd it)) g.

  (** Whether the edge from a terminal to its stream's next node is taken for full. *)
  Definition taken_for_full (t : node) : bool :=
    match p with Deny | Trust => true | Lag => false | Auto => negb (leads_on t) end.

  (** K: the nodes that are proven to be completed before any next node of a stream with these terminals starts. *)
  Definition known (terminals : list node) (x : node) : Prop :=
    exists t, In t terminals /\ (completed p g x t \/ taken_for_full t = true /\ reach p g x t).

  (** N: what has to be completed before another block may have the memory: the free markers, all that the block's
      streams gained in its life, and its allocation point. *)
  Definition needed (a : life) (x : node) : Prop :=
    In x (markers a ++ own_gains a ++ other_gains a ++ point a).

  (** Memory may go from one block to another: the order of design/minimum.md. *)
  Definition precedes (a b : life) : Prop := freed a /\ forall x, needed a x -> known (point b) x.

  (** The free markers cover the users. It follows from streams that only move forward; here it is asked of each
      block. *)
  Definition covered (a : life) : Prop :=
    forall x, In x (users a) -> exists m, In m (markers a) /\ reach p g x m.

  (** The users come after the allocation point, by edges of any kind. It is so by definition but for streams that were
      set back. *)
  Definition comes_after (b : life) : Prop :=
    forall y, In y (users b) -> forall t, In t (point b) -> t <> y /\ reach Lag g t y.

  (** Whether all edges of the graph prove something. *)
  Definition whole : Prop := p <> Deny \/ forall u k v, edge g u k v -> k = FullEdge.

  (** The marker rule: the earlier block was freed, its free markers cover its users, and they are proven to be
      completed before any first work of the later one: by what is known at the allocation point, or node by node. *)
  Definition marker_rule (a b : life) : Prop :=
    freed a /\ covered a /\
    ((whole /\ comes_after b /\ forall m, In m (markers a) -> known (point b) m) \/
     forall m y, In m (markers a) -> In y (users b) -> completed p g m y).

  (** What is promised: every possible user of the one is completed before any of the other starts. *)
  Definition ordered (a b : life) : Prop :=
    forall x y, In x (users a) -> In y (users b) -> completed p g x y.

  Lemma known_down : forall nodes x y, reach p g x y -> known nodes y -> known nodes x.
  Proof.
    intros nodes x y R [t [I [C|[F S]]]]; exists t; split; auto.
    - left. eapply reach_completed; eauto.
    - right. split; auto. eapply reach_trans; eauto.
  Qed.

  (** [precedes] is transitive: a block needs what it knew. *)
  Lemma precedes_trans : forall a b c, precedes a b -> precedes b c -> precedes a c.
  Proof.
    intros a b c [Fa A] [Fb B]. split; auto. intros x H.
    destruct (A x H) as [t [I K]].
    apply (known_down _ x t).
    - destruct K as [C|[_ R]]; auto. apply completed_reach; auto.
    - apply B. unfold needed. repeat (apply in_or_app; right). auto.
  Qed.

  Lemma any_proves : whole -> forall u k v, edge g u k v -> exists s, proves p k = Some s.
  Proof.
    intros Wh u k v E. destruct k; [destruct p; simpl; eauto|].
    destruct Wh as [N|F].
    - destruct p; simpl; eauto. congruence.
    - specialize (F _ _ _ E). discriminate.
  Qed.

  Lemma any_reach : whole -> forall u v, reach Lag g u v -> reach p g u v.
  Proof.
    intros Wh u v H. induction H as [|u v w k s H IH E P]; [apply reach_self|].
    destruct (any_proves Wh _ _ _ E) as [t T]. eapply reach_step; eauto.
  Qed.

  Lemma reach_first : forall q u w, reach q g u w -> u <> w ->
    exists v k s, edge g u k v /\ proves q k = Some s /\ reach q g v w.
  Proof.
    intros q u w H. induction H as [|u v w k s H IH E P]; [congruence|]. intros N.
    destruct (Pos.eq_dec u v) as [->|M].
    - exists w, k, s. repeat split; auto. apply reach_self.
    - destruct (IH M) as [x [l [t [A [B C]]]]]. exists x, l, t. repeat split; auto. eapply reach_step; eauto.
  Qed.

  Lemma leads_on_edge : forall u v, edge g u Programmatic v -> leads_on u = true.
  Proof.
    intros u v [deps [I J]]. unfold leads_on. apply existsb_exists. exists (v, deps). split; auto.
    apply existsb_exists. exists (u, Programmatic). split; auto. simpl. rewrite Pos.eqb_refl. auto.
  Qed.

  (** What is known at the allocation point is completed before all that comes after it. *)
  Lemma point_before_work : whole -> forall b, comes_after b -> forall m, known (point b) m ->
    forall y, In y (users b) -> completed p g m y.
  Proof.
    intros Wh b After m [t [I K]] y Y. destruct (After y Y t I) as [N R].
    destruct K as [C|[F M]].
    - eapply completed_then; eauto. apply any_reach; auto.
    - destruct (reach_first _ _ _ R N) as [v [k [s [E [P V]]]]].
      assert (Full_ : proves p k = Some Full).
      { destruct k; [destruct p; auto|]. destruct (any_proves Wh _ _ _ E) as [s' P'].
        unfold taken_for_full in F. rewrite (leads_on_edge _ _ E) in F. destruct p; simpl in *; congruence. }
      apply completed_then with v; [|apply any_reach; auto].
      eapply completed_full; eauto.
  Qed.

  (** Theorem 1, in terms of paths: the marker rule orders all uses. *)
  Theorem marker_rule_orders : forall a b, marker_rule a b -> ordered a b.
  Proof.
    intros a b [_ [Cov Rule]] x y X Y. destruct (Cov x X) as [m [M R]].
    eapply reach_completed; eauto.
    destruct Rule as [[Wh [After K]]|Direct]; [|auto].
    eapply point_before_work; eauto.
  Qed.

  (** Two blocks with an order of [precedes] obey the marker rule. *)
  Lemma precedes_marker_rule : forall a b, whole -> covered a -> comes_after b -> precedes a b -> marker_rule a b.
  Proof.
    intros a b Wh Cov After [F K]. split; [auto|split; [auto|left]]. split; [auto|split; [auto|]].
    intros m M. apply K. unfold needed. apply in_or_app. auto.
  Qed.

  (** ** Theorem 1: placements at addresses *)

  Variable place : block -> N.

  (** Whether a block occupies a byte of memory. *)
  Definition lies_at (b : life) (address : N) : Prop :=
    place (id b) <= address < place (id b) + occupied b.

  Definition share (a b : life) : Prop := exists address, lies_at a address /\ lies_at b address.

  (** In a run all uses of one block are completed before any of another starts. *)
  Definition apart_in (starts ends : node -> N) (a b : life) : Prop :=
    forall x y, In x (users a) -> In y (users b) -> ends x <= starts y.

  (** In a line of the nodes all uses of one block come before any of another. *)
  Definition apart_along (line : list node) (a b : life) : Prop :=
    forall x y, In x (users a) -> In y (users b) -> place_of x line < place_of y line.

  (** If any two blocks that share a byte obey the marker rule one way or the other (or are ordered by name), then in
      every run all uses of the one are completed before any use of the other starts. *)
  Theorem no_block_is_aliased : forall blocks,
    (forall a b, In a blocks -> In b blocks -> id a <> id b -> share a b ->
       (marker_rule a b \/ ordered a b) \/ (marker_rule b a \/ ordered b a)) ->
    forall a b, In a blocks -> In b blocks -> id a <> id b -> share a b ->
    (forall starts ends, legal p g starts ends -> apart_in starts ends a b) \/
    (forall starts ends, legal p g starts ends -> apart_in starts ends b a).
  Proof.
    intros blocks Rule a b A B N S.
    destruct (Rule a b A B N S) as [[R|R]|[R|R]]; [left|left|right|right];
      intros starts ends L x y X Y; apply (completed_in_runs p g _ _ L); auto;
      apply marker_rule_orders in R; auto.
  Qed.

  (** And in every linear extension of the graph all uses of the one come before all uses of the other. *)
  Theorem no_block_is_aliased_in_extensions : forall blocks,
    (forall a b, In a blocks -> In b blocks -> id a <> id b -> share a b ->
       (marker_rule a b \/ ordered a b) \/ (marker_rule b a \/ ordered b a)) ->
    forall a b, In a blocks -> In b blocks -> id a <> id b -> share a b ->
    (forall line, linear_extension p g line -> apart_along line a b) \/
    (forall line, linear_extension p g line -> apart_along line b a).
  Proof.
    intros blocks Rule a b A B N S.
    destruct (Rule a b A B N S) as [[R|R]|[R|R]]; [left|left|right|right];
      intros line L x y X Y; apply (completed_in_extensions p g _ L); auto;
      apply marker_rule_orders in R; auto.
  Qed.

  (** ** Theorem 2: the least memory *)

  (** Whether a block needs memory: it was not freed, or some node can have used it. *)
  Definition works (b : life) : Prop :=
    ~ freed b \/ own_gains b <> [] \/ exists x, In x (other_gains b) /\ ~ known (point b) x.

  (** A placement by single bytes, as mappings of memory could make it: [cells b] are the bytes of memory behind the
      block, all different. Blocks that need memory have a byte in common only if one precedes the other. Any placement
      at addresses is one of these, so what holds of all of these holds of those. *)
  Definition safe (blocks : list life) (cells : life -> list nat) : Prop :=
    (forall b, In b blocks -> works b -> NoDup (cells b) /\ length (cells b) = N.to_nat (occupied b)) /\
    forall a b c, In a blocks -> In b blocks -> works a -> works b -> id a <> id b ->
      In c (cells a) -> In c (cells b) -> precedes a b \/ precedes b a.

  (** A placement lies in a memory if that has all its bytes. *)
  Definition lies_in (blocks : list life) (cells : life -> list nat) (memory : list nat) : Prop :=
    forall b, In b blocks -> works b -> incl (cells b) memory.

  Definition weight (blocks : list life) : N := fold_right (fun b sum => occupied b + sum) 0 blocks.

  (** Blocks that need memory, each once, of which none precedes another. *)
  Definition antichain (blocks chosen : list life) : Prop :=
    NoDup (List.map id chosen) /\ (forall b, In b chosen -> In b blocks /\ works b) /\
    forall a b, In a chosen -> In b chosen -> id a <> id b -> ~ precedes a b.

  Lemma NoDup_app : forall (a b : list nat), NoDup a -> NoDup b -> (forall x, In x a -> ~ In x b) -> NoDup (a ++ b).
  Proof.
    induction a as [|x a IH]; intros b A B D; simpl; auto.
    inversion A; subst. constructor.
    - intros I. apply in_app_or in I. destruct I; auto. apply (D x); simpl; auto.
    - apply IH; auto. intros y Y. apply D. simpl; auto.
  Qed.

  (** From below: no placement lies in less memory than an antichain weighs. *)
  Theorem antichain_bounds : forall blocks chosen, antichain blocks chosen ->
    forall cells memory, safe blocks cells -> lies_in blocks cells memory ->
    weight chosen <= N.of_nat (length memory).
  Proof.
    intros blocks chosen [Once [All Un]] cells memory [Own Apart] In_.
    assert (H : forall l, NoDup (List.map id l) -> incl l chosen ->
      NoDup (flat_map cells l) /\ length (flat_map cells l) = N.to_nat (weight l)).
    { induction l as [|b l IH]; intros D I; simpl; [split; [constructor|auto]|].
      inversion D as [|? ? Nb D']; subst.
      destruct IH as [ND Len]; auto; [intros x X; apply I; simpl; auto|].
      assert (B : In b chosen) by (apply I; simpl; auto).
      destruct (All b B) as [Bb Wb]. destruct (Own b Bb Wb) as [Nc Lc].
      split.
      - apply NoDup_app; auto. intros c C J. apply in_flat_map in J. destruct J as [a [A Ca]].
        assert (Ac : In a chosen) by (apply I; simpl; auto).
        assert (Ne : id a <> id b) by (intros E; apply Nb; rewrite <- E; apply in_map; auto).
        destruct (All a Ac) as [Ba Wa].
        destruct (Apart a b c) as [P|P]; auto; [apply (Un a b)|apply (Un b a)]; auto.
      - rewrite app_length, Lc, Len, N2Nat.inj_add. auto. }
    destruct (H chosen Once (incl_refl _)) as [ND Len].
    assert (L : (length (flat_map cells chosen) <= length memory)%nat).
    { apply NoDup_incl_length; auto. intros c C. apply in_flat_map in C. destruct C as [b [B C]].
      destruct (All b B) as [Bb Wb]. apply (In_ b Bb Wb). auto. }
    rewrite Len in L. lia.
  Qed.

  (** A cover: chains, each of so many bytes that its blocks have one after the other. *)
  Definition cover := list (N * list life).

  Definition cover_bytes (c : cover) : N := fold_right (fun chain sum => fst chain + sum) 0 c.

  Definition in_chain (b : life) (chain : N * list life) : bool := existsb (fun a => Pos.eqb (id a) (id b)) (snd chain).

  (** What a block has of all chains. *)
  Definition given (c : cover) (b : life) : N :=
    fold_right (fun chain sum => if in_chain b chain then fst chain + sum else sum) 0 c.

  (** In each chain every block precedes the next, and each block that needs memory gets all that it occupies. *)
  Definition covers (blocks : list life) (c : cover) : Prop :=
    (forall chain, In chain c -> Sorted precedes (snd chain) /\ incl (snd chain) blocks) /\
    (forall b, In b blocks -> works b -> given c b = occupied b) /\
    NoDup (List.map id blocks).

  Fixpoint cells_from (offset : nat) (c : cover) (b : life) : list nat :=
    match c with
    | [] => []
    | chain :: c =>
        (if in_chain b chain then seq offset (N.to_nat (fst chain)) else [])
        ++ cells_from (offset + N.to_nat (fst chain)) c b
    end.

  Lemma cells_above : forall c o b x, In x (cells_from o c b) -> (o <= x < o + N.to_nat (cover_bytes c))%nat.
  Proof.
    induction c as [|chain c IH]; intros o b x H; simpl in *; [destruct H|].
    rewrite N2Nat.inj_add. apply in_app_or in H. destruct H as [H|H].
    - destruct (in_chain b chain); [|destruct H]. apply in_seq in H. lia.
    - apply IH in H. lia.
  Qed.

  Lemma cells_once : forall c o b, NoDup (cells_from o c b).
  Proof.
    induction c as [|chain c IH]; intros o b; simpl; [constructor|].
    apply NoDup_app; auto.
    - destruct (in_chain b chain); [apply seq_NoDup|constructor].
    - intros x H J. apply cells_above in J. destruct (in_chain b chain); [|destruct H]. apply in_seq in H. lia.
  Qed.

  Lemma cells_length : forall c o b, length (cells_from o c b) = N.to_nat (given c b).
  Proof.
    induction c as [|chain c IH]; intros o b; simpl; auto.
    rewrite app_length, IH. destruct (in_chain b chain); simpl; [|auto].
    rewrite seq_length, N2Nat.inj_add. auto.
  Qed.

  Lemma cells_common : forall c o a b x, In x (cells_from o c a) -> In x (cells_from o c b) ->
    exists chain, In chain c /\ in_chain a chain = true /\ in_chain b chain = true.
  Proof.
    induction c as [|chain c IH]; intros o a b x A B; simpl in *; [destruct A|].
    assert (Off : forall d y, In y (if in_chain d chain then seq o (N.to_nat (fst chain)) else []) ->
      in_chain d chain = true /\ (y < o + N.to_nat (fst chain))%nat).
    { intros d y H. destruct (in_chain d chain); [|destruct H]. apply in_seq in H. split; auto. lia. }
    apply in_app_or in A. apply in_app_or in B. destruct A as [A|A], B as [B|B].
    - apply Off in A. apply Off in B. exists chain. intuition.
    - apply Off in A. apply cells_above in B. lia.
    - apply Off in B. apply cells_above in A. lia.
    - destruct (IH _ _ _ _ A B) as [it [I J]]. exists it. auto.
  Qed.

  Lemma sorted_in : forall l a b, StronglySorted precedes l -> In a l -> In b l ->
    a = b \/ precedes a b \/ precedes b a.
  Proof.
    induction l as [|x l IH]; intros a b S A B; [destruct A|].
    apply StronglySorted_inv in S. destruct S as [S F]. rewrite Forall_forall in F.
    destruct A as [->|A], B as [->|B]; auto.
  Qed.

  Lemma same_life : forall blocks a b, NoDup (List.map id blocks) -> In a blocks -> In b blocks -> id a = id b -> a = b.
  Proof.
    induction blocks as [|x l IH]; intros a b D A B E; [destruct A|].
    inversion D as [|? ? N D']; subst. destruct A as [->|A], B as [->|B]; auto.
    - exfalso. apply N. rewrite E. apply in_map. auto.
    - exfalso. apply N. rewrite <- E. apply in_map. auto.
  Qed.

  (** From above: a cover is a placement in as much memory as its chains have. *)
  Theorem cover_bounds : forall blocks c, covers blocks c ->
    exists cells memory, safe blocks cells /\ lies_in blocks cells memory /\
      N.of_nat (length memory) = cover_bytes c.
  Proof.
    intros blocks c [Chains [Given Once]].
    exists (cells_from 0 c), (seq 0 (N.to_nat (cover_bytes c))). split; [split|split].
    - intros b B Wb. split; [apply cells_once|]. rewrite cells_length, Given; auto.
    - intros a b x A B Wa Wb N Xa Xb.
      destruct (cells_common _ _ _ _ _ Xa Xb) as [chain [I [Ia Ib]]].
      destruct (Chains chain I) as [S J].
      apply existsb_exists in Ia. destruct Ia as [a' [Ia Ea]]. apply Pos.eqb_eq in Ea.
      apply existsb_exists in Ib. destruct Ib as [b' [Ib Eb]]. apply Pos.eqb_eq in Eb.
      assert (a' = a) by (eapply same_life; eauto). assert (b' = b) by (eapply same_life; eauto). subst a' b'.
      apply Sorted_StronglySorted in S; [|intros u v w; apply precedes_trans].
      destruct (sorted_in _ _ _ S Ia Ib) as [->|[P|P]]; auto. congruence.
    - intros b B Wb x X. apply cells_above in X. apply in_seq. lia.
    - rewrite seq_length. lia.
  Qed.

  (** So much memory is enough for a safe placement, and no less is. *)
  Definition least_memory (blocks : list life) (least : N) : Prop :=
    (exists cells memory, safe blocks cells /\ lies_in blocks cells memory /\ N.of_nat (length memory) = least) /\
    forall cells memory, safe blocks cells -> lies_in blocks cells memory -> least <= N.of_nat (length memory).

  Theorem antichain_and_cover : forall blocks chosen c,
    antichain blocks chosen -> covers blocks c -> weight chosen = cover_bytes c ->
    least_memory blocks (weight chosen).
  Proof.
    intros blocks chosen c A C E. split.
    - destruct (cover_bounds _ _ C) as [cells [memory [S [L M]]]]. exists cells, memory. rewrite E. auto.
    - intros cells memory S L. eapply antichain_bounds; eauto.
  Qed.

End Rules.
