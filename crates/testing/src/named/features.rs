//! What the host of a program does, and how often.

use Step::*;

use crate::weights::Weights;

/// A step of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Launch,
    Allocate,
    Free,
    Share,
    Wait,
    Complete,
    JudgeDevice,
    Trim,
    TrimTo,
    Learn,
    Mark,
    /// A stream is destroyed, and another one takes its part.
    Replace,
    Limit,
    Reset,
    Begin,
    End,
    /// A graph is launched.
    Replay,
    Release,
    Judge,
    /// A coming call of the driver fails.
    Inject,
    MakeObject,
    DropObject,
    BeginRoute,
    EndRoute,
    UseOnOom,
    EmptyPool,
    EmptyCache,
    Caching,
    Save,
    Restore,
    Open,
    Close,
    Nap,
}

/// A host of eager work on several streams, with a graph now and then.
#[rustfmt::skip]
pub(super) const EAGER: Weights<Step> = Weights(&[
    (Launch, 18), (Allocate, 23), (Free, 16), (Share, 8), (Wait, 5), (Complete, 6),
    (JudgeDevice, 1), (Trim, 1), (TrimTo, 1), (Learn, 1), (Mark, 1), (Replace, 2), (Limit, 1),
    (Reset, 1), (Begin, 2), (End, 2), (Replay, 2), (Release, 1), (Judge, 1), (Caching, 1),
    (MakeObject, 3), (DropObject, 3), (BeginRoute, 2), (EndRoute, 2), (UseOnOom, 3), (Save, 1),
    (Restore, 1), (Inject, 1), (Nap, 1),
]);

/// A host that names its pools.
#[rustfmt::skip]
pub(super) const NAMED: Weights<Step> = Weights(&[
    (Launch, 18), (Allocate, 22), (Free, 13), (Share, 4), (Wait, 4), (Complete, 4),
    (MakeObject, 4), (DropObject, 2), (BeginRoute, 4), (EndRoute, 3), (UseOnOom, 1),
    (EmptyPool, 1), (EmptyCache, 1), (Caching, 1), (Begin, 3), (End, 2), (Replay, 2),
    (Release, 1), (Save, 2), (Restore, 3), (Open, 1), (Close, 1), (Inject, 1), (JudgeDevice, 1),
    (Nap, 1),
]);

/// Such a host that looks after the engine behind the plug-in as well.
#[rustfmt::skip]
pub(super) const NAMED_WITH_UPKEEP: Weights<Step> = Weights(&[
    (Launch, 18), (Allocate, 22), (Free, 10), (Share, 6), (Wait, 4), (Complete, 4),
    (MakeObject, 4), (DropObject, 2), (BeginRoute, 4), (EndRoute, 3), (UseOnOom, 2),
    (EmptyPool, 1), (Trim, 2), (TrimTo, 2), (Learn, 2), (Mark, 2), (Judge, 2), (Caching, 1),
    (Begin, 3), (End, 2), (Replay, 2), (Release, 1), (Save, 2), (Restore, 3), (Open, 2),
    (Close, 1), (Inject, 1), (Nap, 2),
]);
