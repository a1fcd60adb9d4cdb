//! A training-like workload outside captures, and what allocators make of it.
//!
//! The workload is that of a transformer trained on batches of variable length, as its host submits
//! it. Sizes follow from the model's shape and the step's batch; by default (12 layers, hidden size
//! 1024, up to 4,096 tokens a step) they come to this:
//!
//! | what | sizes | lifetime |
//! |---|---|---|
//! | parameters | 2 KiB to 32 MiB | for ever |
//! | optimizer state, 3 for each parameter | 4 KiB to 64 MiB | for ever, from the first update on |
//! | activations: hidden, attention, feed-forward | 3 to 128 MiB, by the batch | until their backward pass |
//! | statistics | 6 to 16 KiB, by the batch | until their backward pass |
//! | metrics | 512 B to 8 KiB, log-uniform | until the end of the step |
//! | logits, probabilities and their gradients | 50 to 256 MiB, by the batch | a few operations |
//! | workspaces | 64 KiB to 24 MiB, log-uniform | freed at once |
//! | workspaces of the first two steps (autotuning) | 1 to 256 MiB, log-uniform | freed at once |
//! | parameters' gradients | as the parameters | until the update |
//! | the update's temporaries | as the optimizer state | freed at once |
//! | gradient buckets, used on a side stream | 24 MiB | freed once submitted |
//! | layers' weights, fetched ahead on a side stream | 24 MiB | a layer's pass |
//! | input batches, fetched ahead on a side stream | 25 to 128 KiB | a step |
//! | checkpoints' buffers, on a side stream, every 12th step | 48 MiB | until the next step's end |
//!
//! A batch's length is log-uniform between 128 and 1,024 tokens, and it holds half as many sequences
//! as its tokens allow or more, so hardly two steps have the same sizes. After every 8th step comes an
//! evaluation of two forward passes over twice the tokens. Peak allocated is some 6 GiB.
//! Of 100,000 operations 31,000 allocate: 46 % of these less than 1 MiB, 25 % up to 8 MiB, and 29 %
//! more.
//!
//! Nothing ends the workload but its length: what is live then stays so, namely parameters,
//! optimizer state and what the step under way holds.

mod background;
mod backward;
mod batch;
mod forward;
mod model;
mod on_engine;
mod on_peer;
mod operation;
mod row;
mod sequence;
mod trainer;
mod update;
mod workload;

pub use on_engine::{on_engine, TrainingError};
pub use on_peer::on_peer;
pub use operation::Operation;
pub use row::{Policy, Row};
pub use workload::Workload;
