//! The macro in which each setting is written once.

/// Defines the settings of a role: for each its meaning, name, type, the form of its value, its default, and
/// when a change takes effect.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $set:ident {
            $(
                $(#[doc = $doc:literal])*
                $name:literal $field:ident: $type:ty, $value:literal, $default:expr, $change:ident;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $set {
            $($(#[doc = $doc])* pub $field: Option<$type>,)*
        }

        impl crate::config::settings::Settings for $set {
            const KEYS: &'static [crate::config::settings::Key] = &[$(crate::config::settings::Key {
                name: $name,
                value: $value,
                shape: <$type as crate::config::value::Value>::SHAPE,
                default: $default,
                change: crate::config::settings::Change::$change,
                docs: concat!($($doc),*),
            },)*];

            fn set(&mut self, name: &str, texts: &[String]) -> Result<(), String> {
                match name {
                    $($name => self.$field = Some(<$type as crate::config::value::Value>::read(texts)?),)*
                    _ => return Err(format!("there is no setting `{name}`")),
                }
                Ok(())
            }

            fn texts(&self, name: &str) -> Option<Vec<String>> {
                match name {
                    $($name => self.$field.as_ref().map(crate::config::value::Value::texts),)*
                    _ => None,
                }
            }

            fn over(self, those: Self) -> Self {
                Self { $($field: self.$field.or(those.$field),)* }
            }

            fn differing(&self, other: &Self) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(if self.$field != other.$field {
                    names.push($name);
                })*
                names
            }
        }
    };
}

pub(crate) use settings;
