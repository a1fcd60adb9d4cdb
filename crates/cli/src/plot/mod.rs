//! A page that draws a trace's memory over its operations, one panel for each way to run it.
//!
//! The page is one file of HTML with the drawing inside: it loads nothing and needs no network. Its
//! script only adds what a pointer or the arrow keys read off the drawing. The drawing can be a file of SVG by itself.
//!
//! * `series`: the figures of one run.
//! * `layout`: where its blocks lay, and the least memory that they need.
//! * [`thin()`]: fewer points with the same peaks.
//! * `scale`, `chart`, `page`: axes, drawing, and the page around it.

mod chart;
mod layout;
mod page;
mod scale;
mod series;
mod thin;

pub use layout::{Layout, Least};
pub use page::Plot;
pub use series::Series;
pub use thin::thin;
