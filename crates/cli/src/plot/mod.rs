//! A page that draws a trace's memory over its operations, one panel for each way to run it.
//!
//! The page is one file of HTML with the drawing inside: it loads nothing and needs no network. Its
//! script only adds what a pointer or the arrow keys read off the curves.
//!
//! * `series`: the figures of one run.
//! * [`thin()`]: fewer points with the same peaks.
//! * `scale`, `chart`, `page`: axes, drawing, and the page around it.

mod chart;
mod page;
mod scale;
mod series;
mod thin;

pub use page::render;
pub use series::Series;
pub use thin::thin;
