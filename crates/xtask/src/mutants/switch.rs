//! All mutants in one source: what stands with the rule and what stands without it, behind a switch.
//!
//! A mutant's edit is widened to the smallest part of a function that can be written twice: statements, what a
//! variable is set to, a condition, an arm of a match, a closure's or a field's value, a call that it is an inner part of. The
//! source with all switches is built once, and each run of its tests turns one on.

use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, BinOp, Block, Expr, ExprClosure, ExprIf, ExprRepeat, ExprWhile, FieldValue};
use syn::{GenericArgument, ImplItemFn, ItemConst, ItemFn, ItemMod, ItemStatic, Local};
use syn::{PatGuard, Stmt, Type};

/// The variable of the environment with the number of the switch that is on.
pub(super) const CHOSEN: &str = "REGRAPH_MUTANT";

/// What a crate with switches has at the end of its root.
pub(super) const FUNCTION: &str = "
/// Whether a switch is on.
pub(crate) fn is_mutant(number: usize) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| std::env::var(\"REGRAPH_MUTANT\").ok()?.parse().ok()) == Some(number)
}
";

/// What a switch changes in a file.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    pub switch: usize,
    pub at: Range<usize>,
    pub instead: String,
}

/// A file with switches.
///
/// # Errors
/// A file that is no Rust, and an edit of something that cannot be written twice: a pattern, a type, a constant.
pub(super) fn switched(source: &str, edits: &[Edit]) -> Result<String, String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let mut places = Places::default();
    places.visit_file(&file);
    let mut switches = Vec::new();
    for edit in edits {
        switches.push(
            places
                .widen(source, edit)
                .ok_or_else(|| format!("this cannot be switched: {}", &source[edit.at.clone()]))?,
        );
    }
    // A wider one goes around those in it.
    switches.sort_by_key(|it| (it.at.start, std::cmp::Reverse(it.at.end)));
    let mut text = String::new();
    let end = write(source, 0..source.len(), &mut switches.as_slice(), &mut text);
    text.push_str(&source[end..]);
    match syn::parse_file(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(format!("with switches it is no Rust: {error}")),
    }
}

/// Writes the switches that lie in a range, and what stands between them. Returns where the last one ends.
fn write(source: &str, range: Range<usize>, rest: &mut &[Switch], text: &mut String) -> usize {
    let mut written = range.start;
    while let [first, others @ ..] = *rest {
        if first.at.end > range.end {
            break;
        }
        *rest = others;
        text.push_str(&source[written..first.at.start]);
        let (open, close) = match first.form {
            Form::Value | Form::Parted => ("(", ")"),
            Form::Body => ("{ ", " }"),
            Form::Whole | Form::Statement => ("", ""),
        };
        let Switch { number, mutated, .. } = first;
        text.push_str(&format!("{open}if crate::is_mutant({number}) {{ {mutated} }} else {{ "));
        let end = write(source, first.at.clone(), rest, text);
        text.push_str(&source[end..first.at.end]);
        text.push_str(&format!(" }}{close}"));
        written = first.at.end;
    }
    written
}

#[derive(Debug)]
struct Switch {
    number: usize,
    at: Range<usize>,
    form: Form,
    mutated: String,
}

/// Where a switch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A part of a value.
    Value,
    /// A value before `else`.
    Parted,
    /// A value between a keyword and a brace or a semicolon.
    Whole,
    /// What an arm or a closure does, which no comma need follow.
    Body,
    Statement,
}

/// What can be written twice.
#[derive(Debug, Default)]
struct Places {
    places: Vec<(Range<usize>, Form)>,
    blocks: Vec<Between>,
}

/// What stands between a block's braces.
#[derive(Debug)]
struct Between {
    at: Range<usize>,
    /// With whether each is known behind it, as a variable or an item is.
    statements: Vec<(Range<usize>, bool)>,
}

impl Places {
    /// The smallest place that holds an edit and is whole with it.
    fn widen(&self, source: &str, edit: &Edit) -> Option<Switch> {
        let edit = shortened(source, edit);
        let holds = |at: &Range<usize>| at.start <= edit.at.start && edit.at.end <= at.end;
        // What is called on a value may have another type with the edit.
        let ends = |at: &Range<usize>| at.start == edit.at.start || edit.at.end == at.end;
        let fits = |(at, form): &&(Range<usize>, Form)| match form {
            Form::Value => holds(at) && !ends(at),
            _ => holds(at),
        };
        let mut all: Vec<_> = self.places.iter().filter(fits).cloned().collect();
        let blocks = self.blocks.iter().filter(|it| holds(&it.at));
        let between = blocks.filter(|block| {
            block.statements.iter().all(|(at, is_local)| {
                let within = edit.at.start <= at.start && at.end <= edit.at.end;
                let beside = at.end <= edit.at.start || edit.at.end <= at.start;
                beside || within && !is_local
            })
        });
        all.extend(between.map(|_| (edit.at.clone(), Form::Statement)));
        all.sort_by_key(|it| it.0.len());
        all.into_iter().find_map(|(at, form)| {
            let before = &source[at.start..edit.at.start];
            let mutated = format!("{before}{}{}", edit.instead, &source[edit.at.end..at.end]);
            let is_whole = match form {
                Form::Statement => syn::parse_str::<Block>(&format!("{{{mutated}\n}}")).is_ok(),
                _ => syn::parse_str::<Expr>(&mutated).is_ok_and(|it| !matches!(it, Expr::Let(_))),
            };
            is_whole.then_some(Switch { number: edit.switch, at, form, mutated })
        })
    }

    fn add(&mut self, span: Span, form: Form) {
        self.places.push((span.byte_range(), form));
    }

    fn add_condition(&mut self, condition: &Expr) {
        if !has_let(condition) {
            self.add(condition.span(), Form::Whole);
        }
    }
}

/// An edit without what it leaves as it is at its ends.
fn shortened(source: &str, edit: &Edit) -> Edit {
    let text = &source[edit.at.clone()];
    let same = |(a, b): &(char, char)| a == b;
    let length = |(a, _): (char, char)| a.len_utf8();
    let pairs = text.chars().zip(edit.instead.chars());
    let before: usize = pairs.take_while(same).map(length).sum();
    let (text, instead) = (&text[before..], &edit.instead[before..]);
    let pairs = text.chars().rev().zip(instead.chars().rev());
    let after: usize = pairs.take_while(same).map(length).sum();
    let at = edit.at.start + before..edit.at.end - after;
    Edit { at, instead: instead[..instead.len() - after].to_owned(), ..edit.clone() }
}

fn has_let(condition: &Expr) -> bool {
    struct Lets(bool);
    impl<'a> Visit<'a> for Lets {
        fn visit_expr_let(&mut self, _: &'a syn::ExprLet) {
            self.0 = true;
        }
    }
    let mut lets = Lets(false);
    lets.visit_expr(condition);
    lets.0
}

fn is_assignment(op: &BinOp) -> bool {
    use BinOp::{AddAssign, BitAndAssign, BitOrAssign, BitXorAssign, DivAssign, MulAssign};
    use BinOp::{RemAssign, ShlAssign, ShrAssign, SubAssign};
    let add = matches!(op, AddAssign(_) | SubAssign(_) | MulAssign(_) | DivAssign(_));
    let bits = matches!(op, BitAndAssign(_) | BitOrAssign(_) | BitXorAssign(_));
    add || bits || matches!(op, RemAssign(_) | ShlAssign(_) | ShrAssign(_))
}

impl<'a> Visit<'a> for Places {
    fn visit_block(&mut self, block: &'a Block) {
        let statements = block.stmts.iter();
        let statements = statements
            .map(|it| (it.span().byte_range(), matches!(it, Stmt::Local(_) | Stmt::Item(_))))
            .collect();
        let all = block.span().byte_range();
        self.blocks.push(Between { at: all.start + 1..all.end - 1, statements });
        visit::visit_block(self, block);
    }

    fn visit_stmt(&mut self, statement: &'a Stmt) {
        if matches!(statement, Stmt::Expr(..) | Stmt::Macro(_)) {
            self.add(statement.span(), Form::Statement);
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_local(&mut self, local: &'a Local) {
        if let Some(init) = &local.init {
            let form = if init.diverge.is_some() { Form::Parted } else { Form::Whole };
            self.add(init.expr.span(), form);
        }
        visit::visit_local(self, local);
    }

    fn visit_arm(&mut self, arm: &'a Arm) {
        self.add(arm.body.span(), Form::Body);
        visit::visit_arm(self, arm);
    }

    fn visit_expr(&mut self, it: &'a Expr) {
        let is_value = match it {
            Expr::Binary(binary) => !is_assignment(&binary.op) && !has_let(it),
            Expr::Call(_) | Expr::MethodCall(_) => true,
            _ => false,
        };
        if is_value {
            self.add(it.span(), Form::Value);
        }
        visit::visit_expr(self, it);
    }

    fn visit_pat_guard(&mut self, it: &'a PatGuard) {
        self.add_condition(&it.guard);
        visit::visit_pat_guard(self, it);
    }

    fn visit_expr_if(&mut self, it: &'a ExprIf) {
        self.add_condition(&it.cond);
        visit::visit_expr_if(self, it);
    }

    fn visit_expr_while(&mut self, it: &'a ExprWhile) {
        self.add_condition(&it.cond);
        visit::visit_expr_while(self, it);
    }

    fn visit_expr_closure(&mut self, it: &'a ExprClosure) {
        self.add(it.body.span(), Form::Body);
        visit::visit_expr_closure(self, it);
    }

    fn visit_field_value(&mut self, it: &'a FieldValue) {
        if it.colon_token.is_some() {
            self.add(it.expr.span(), Form::Whole);
        }
        visit::visit_field_value(self, it);
    }

    // What the compiler computes knows no environment.
    fn visit_item_fn(&mut self, it: &'a ItemFn) {
        if it.sig.constness.is_none() {
            visit::visit_item_fn(self, it);
        }
    }

    fn visit_impl_item_fn(&mut self, it: &'a ImplItemFn) {
        if it.sig.constness.is_none() {
            visit::visit_impl_item_fn(self, it);
        }
    }

    fn visit_expr_repeat(&mut self, it: &'a ExprRepeat) {
        self.visit_expr(&it.expr);
    }

    fn visit_type(&mut self, _: &'a Type) {}

    fn visit_generic_argument(&mut self, _: &'a GenericArgument) {}

    fn visit_item_const(&mut self, _: &'a ItemConst) {}

    fn visit_item_static(&mut self, _: &'a ItemStatic) {}

    fn visit_item_mod(&mut self, it: &'a ItemMod) {
        // Tests beside what they test.
        if it.content.is_none() || it.ident != "tests" {
            visit::visit_item_mod(self, it);
        }
    }
}
