//! What a trace says of its blocks and nodes to people: names, and where in a program a block came from.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use regraph::snapshot::Frame;
use serde::{Deserialize, Serialize};

use super::rules::{broken, Violation};
use super::{BlockIndex, NodeIndex};

/// Folders of what was installed: lines of code there are rarely the ones that a person looks for.
const INSTALLED: [&str; 7] = [
    "/site-packages/",
    "/dist-packages/",
    "/lib/python3",
    "/.cargo/git/checkouts/",
    "/.cargo/registry/",
    "/rustc/",
    "<frozen ",
];

/// Names of blocks and nodes, and stacks of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    blocks: BTreeMap<BlockIndex, Label>,
    /// By capture, counted from 0, and node.
    nodes: BTreeMap<(usize, NodeIndex), String>,
}

/// What is said of one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Label {
    name: Option<String>,
    stack: Option<Arc<[Frame]>>,
}

impl Labels {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.nodes.is_empty()
    }

    /// Gives a block a name, in place of the one that it had.
    pub fn name_block(&mut self, block: BlockIndex, name: impl Into<String>) {
        self.blocks.entry(block).or_default().name = Some(name.into());
    }

    /// Says where in a program a block was allocated, innermost frame first; nothing where there is no frame.
    pub fn place_block(&mut self, block: BlockIndex, stack: impl Into<Arc<[Frame]>>) {
        let stack = stack.into();
        if !stack.is_empty() {
            self.blocks.entry(block).or_default().stack = Some(stack);
        }
    }

    /// Gives a node of a capture, counted from 0, a name: its kernel's.
    pub fn name_node(&mut self, capture: usize, node: NodeIndex, name: impl Into<String>) {
        self.nodes.insert((capture, node), name.into());
    }

    /// A block's name.
    pub fn block_name(&self, block: BlockIndex) -> Option<&str> {
        self.blocks.get(&block)?.name.as_deref()
    }

    /// Where in a program a block was allocated, innermost frame first; empty where that is not known.
    pub fn stack(&self, block: BlockIndex) -> &[Frame] {
        self.blocks.get(&block).and_then(|label| label.stack.as_deref()).unwrap_or_default()
    }

    /// A node's name.
    pub fn node_name(&self, capture: usize, node: NodeIndex) -> Option<&str> {
        self.nodes.get(&(capture, node)).map(String::as_str)
    }

    /// The line of code that a block leads back to ([`own_frame`]).
    pub fn frame(&self, block: BlockIndex) -> Option<&Frame> {
        own_frame(self.stack(block))
    }

    /// A block in a few words: its name, its line of code, or both; `None` where nothing is said of it.
    pub fn describe(&self, block: BlockIndex) -> Option<String> {
        let line = self.frame(block).map(line);
        match (self.block_name(block), line) {
            (Some(name), Some(line)) => Some(format!("{name}, {line}")),
            (Some(name), None) => Some(name.to_owned()),
            (None, line) => line,
        }
    }

    /// Of blocks that are described alike how many there are and what they take together, in bytes, the most first;
    /// blocks of which nothing is said are together under `None`.
    pub fn group(
        &self,
        blocks: impl IntoIterator<Item = (BlockIndex, u64)>,
    ) -> Vec<(Option<String>, usize, u64)> {
        let mut groups: BTreeMap<Option<String>, (usize, u64)> = BTreeMap::new();
        for (block, bytes) in blocks {
            let group = groups.entry(self.describe(block)).or_default();
            *group = (group.0 + 1, group.1 + bytes);
        }
        let mut rows: Vec<_> =
            groups.into_iter().map(|(what, (count, bytes))| (what, count, bytes)).collect();
        rows.sort_by_key(|&(_, _, bytes)| std::cmp::Reverse(bytes));
        rows
    }

    /// The lines that are written behind a block's allocation. `numbers`: of the stacks that were written.
    pub(super) fn lines_of_block(
        &self,
        block: BlockIndex,
        numbers: &mut HashMap<Arc<[Frame]>, u32>,
    ) -> Vec<Remark> {
        let Some(Label { name, stack }) = self.blocks.get(&block) else { return Vec::new() };
        let mut lines = Vec::new();
        let stack = stack.as_ref().map(|frames| {
            let next = numbers.len() as u32;
            *numbers.entry(Arc::clone(frames)).or_insert_with(|| {
                let frames = frames.iter().cloned().map(StackFrame::from).collect();
                lines.push(Remark::Stack { stack: next, frames });
                next
            })
        });
        lines.push(Remark::Label { block: Some(block), node: None, name: name.clone(), stack });
        lines
    }

    /// The line that is written behind a node.
    pub(super) fn line_of_node(&self, capture: usize, node: NodeIndex) -> Option<Remark> {
        let name = Some(self.node_name(capture, node)?.to_owned());
        Some(Remark::Label { block: None, node: Some(node), name, stack: None })
    }
}

/// Of a stack, innermost frame first, the first one that is in a file of no installed library; else the first one that is
/// in a file, or the innermost one.
pub fn own_frame(stack: &[Frame]) -> Option<&Frame> {
    let in_file = || stack.iter().filter(|frame| !frame.filename.is_empty());
    // A name may begin with the folder, where what stood before it was left out.
    let installed = |name: &str, folder: &&str| {
        name.contains(folder) || name.starts_with(folder.trim_start_matches('/'))
    };
    let own = |frame: &&Frame| !INSTALLED.iter().any(|it| installed(&frame.filename, it));
    in_file().find(own).or_else(|| in_file().next()).or(stack.first())
}

/// A frame as text: file, line and function.
pub fn line(frame: &Frame) -> String {
    let Frame { filename, line, name } = frame;
    match (line, name.is_empty()) {
        (0, true) => filename.clone(),
        (0, false) => format!("{filename} {name}"),
        (_, true) => format!("{filename}:{line}"),
        (_, false) => format!("{filename}:{line} {name}"),
    }
}

/// A line of a trace that is no operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Remark {
    /// Frames that labels name by a number.
    Stack { stack: u32, frames: Vec<StackFrame> },
    /// What is said of a block or a node.
    Label {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        block: Option<BlockIndex>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<NodeIndex>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stack: Option<u32>,
    },
}

/// A [`Frame`] as a line of a trace has it: with no other fields, which snapshots may have.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StackFrame {
    filename: String,
    line: u32,
    name: String,
}

impl From<Frame> for StackFrame {
    fn from(Frame { filename, line, name }: Frame) -> Self {
        Self { filename, line, name }
    }
}

impl From<StackFrame> for Frame {
    fn from(StackFrame { filename, line, name }: StackFrame) -> Self {
        Self { filename, line, name }
    }
}

/// Labels as they are read.
#[derive(Default)]
pub(super) struct Reader {
    labels: Labels,
    stacks: Vec<Arc<[Frame]>>,
}

impl Reader {
    /// Takes a line's. Whether the trace has what it names is the rules' matter.
    pub(super) fn accept(&mut self, remark: Remark, capture: usize) -> Result<(), Violation> {
        match remark {
            Remark::Stack { stack, frames } => {
                if stack as usize != self.stacks.len() {
                    let expected = format!("stack {}, the next number", self.stacks.len());
                    return broken(expected, format!("stack {stack}"));
                }
                if frames.is_empty() {
                    return broken(format!("frames of stack {stack}"), "none");
                }
                self.stacks.push(frames.into_iter().map(Frame::from).collect());
                Ok(())
            }
            Remark::Label { block: Some(block), node: None, name, stack } => {
                if name.is_none() && stack.is_none() {
                    return broken(format!("a name or a stack of block {block}"), "neither");
                }
                let stack = stack.map(|number| self.stack(number)).transpose()?;
                if self.labels.blocks.insert(block, Label { name, stack }).is_some() {
                    return broken("one label for each block", format!("block {block} again"));
                }
                Ok(())
            }
            Remark::Label { block: None, node: Some(node), name: Some(name), stack: None } => {
                if self.labels.nodes.insert((capture, node), name).is_some() {
                    return broken("one label for each node", format!("node {node} again"));
                }
                Ok(())
            }
            Remark::Label { block: None, node: Some(_), .. } => {
                broken("a label of a node with a name and no stack", "another one")
            }
            Remark::Label { block, .. } => broken(
                "a label of a block or of a node",
                if block.is_some() { "one of both" } else { "one of neither" },
            ),
        }
    }

    pub(super) fn finish(self) -> Labels {
        self.labels
    }

    fn stack(&self, number: u32) -> Result<Arc<[Frame]>, Violation> {
        match self.stacks.get(number as usize) {
            Some(stack) => Ok(Arc::clone(stack)),
            None => broken("a stack that a line above has", format!("stack {number}")),
        }
    }
}
