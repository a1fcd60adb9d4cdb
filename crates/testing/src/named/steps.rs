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
    /// A stream is destroyed, and another one takes its part.
    Replace,
    Limit,
    Reset,
    Begin,
    End,
    /// A graph is launched.
    Replay,
    Release,
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

#[rustfmt::skip]
pub(super) const STEPS: Weights<Step> = Weights(&[
    (Launch, 11), (Allocate, 23), (Free, 14), (Share, 7), (Wait, 4), (Complete, 5),
    (MakeObject, 4), (DropObject, 2), (BeginRoute, 4), (EndRoute, 3), (UseOnOom, 3),
    (EmptyPool, 1), (EmptyCache, 1), (Caching, 1), (Trim, 2), (TrimTo, 2), (Replace, 1),
    (Limit, 1), (Reset, 1), (Begin, 3), (End, 2), (Replay, 3), (Release, 1), (Save, 2),
    (Restore, 3), (Open, 1), (Close, 1), (Inject, 1), (JudgeDevice, 1), (Nap, 1),
]);
