//! The types that Rust files declare, with their fields.

use syn::visit::{self, Visit};
use syn::{
    Attribute, Fields, Ident, ImplItem, ItemEnum, ItemImpl, ItemMod, ItemStruct, ItemType,
    Visibility,
};

/// What some files declare, in their order. Types within functions count, those of `#[cfg(test)]` modules and of
/// macros do not.
#[derive(Default)]
pub struct Types {
    pub all: Vec<Type>,
    pub impls: Vec<Impl>,
    file: String,
}

/// An `impl` block.
pub struct Impl {
    /// Its type.
    pub name: String,
    pub file: String,
    /// Its public methods.
    pub methods: u64,
}

pub struct Type {
    pub name: String,
    pub file: String,
    /// Those of all variants, for an enum; a `type` has one, without a name.
    pub fields: Vec<Field>,
    pub variants: usize,
    /// Whether it is a `type`, another name for something.
    pub alias: bool,
}

pub struct Field {
    /// Empty for fields without names.
    pub name: String,
    /// Whether other files of the library may use it, but not its callers.
    pub shared: bool,
    /// Whether its type is `bool` or `Option`.
    pub flag: bool,
    /// Each name in its type.
    pub names: Vec<String>,
}

impl Types {
    /// Those of files given as paths with texts. Fails for a text that is not Rust.
    pub fn of<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let mut types = Self::default();
        for (path, text) in files {
            let file = syn::parse_file(text).map_err(|error| format!("{path}: {error}"))?;
            types.file = path.to_owned();
            types.visit_file(&file);
        }
        Ok(types)
    }

    fn add(&mut self, name: &Ident, fields: Vec<Field>, variants: usize, alias: bool) {
        let (name, file) = (name.to_string(), self.file.clone());
        self.all.push(Type { name, file, fields, variants, alias });
    }
}

/// The fields of a structure or a variant. `public` says whether the library's callers can name its type.
fn fields(fields: &Fields, public: bool) -> impl Iterator<Item = Field> + '_ {
    fields.iter().map(move |field| {
        let names = names(&field.ty);
        let shared = match field.vis {
            Visibility::Public(_) => !public,
            Visibility::Restricted(_) => true,
            Visibility::Inherited => false,
        };
        let flag = names.first().is_some_and(|first| first == "bool" || first == "Option");
        let name = field.ident.as_ref().map(Ident::to_string).unwrap_or_default();
        Field { name, shared, flag, names }
    })
}

/// The last name of each path in a type, outer ones first.
fn names(ty: &syn::Type) -> Vec<String> {
    struct Names(Vec<String>);
    impl<'a> Visit<'a> for Names {
        fn visit_path(&mut self, path: &'a syn::Path) {
            self.0.extend(path.segments.last().map(|last| last.ident.to_string()));
            visit::visit_path(self, path);
        }
    }
    let mut found = Names(Vec::new());
    found.visit_type(ty);
    found.0
}

fn is_test(attributes: &[Attribute]) -> bool {
    let tests = |it: &Attribute| {
        it.path().is_ident("cfg") && it.parse_args::<Ident>().is_ok_and(|name| name == "test")
    };
    attributes.iter().any(tests)
}

impl<'a> Visit<'a> for Types {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'a ItemStruct) {
        let public = matches!(item.vis, Visibility::Public(_));
        self.add(&item.ident, fields(&item.fields, public).collect(), 0, false);
    }

    fn visit_item_enum(&mut self, item: &'a ItemEnum) {
        let all = item.variants.iter().flat_map(|variant| fields(&variant.fields, true));
        self.add(&item.ident, all.collect(), item.variants.len(), false);
    }

    fn visit_item_type(&mut self, item: &'a ItemType) {
        let field =
            Field { name: String::new(), shared: false, flag: false, names: names(&item.ty) };
        self.add(&item.ident, vec![field], 0, true);
    }

    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        if let Some(name) = names(&item.self_ty).into_iter().next() {
            let public = |it: &&ImplItem| match it {
                ImplItem::Fn(method) => matches!(method.vis, Visibility::Public(_)),
                _ => false,
            };
            let methods = item.items.iter().filter(public).count() as u64;
            self.impls.push(Impl { name, file: self.file.clone(), methods });
        }
        visit::visit_item_impl(self, item);
    }
}
