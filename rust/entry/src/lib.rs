//! `#[entry]`: makes a function that Python calls turn a panic into an error.
//!
//! PyO3 would turn it into a `PanicException`, which `except Exception` does not catch. The attribute is put above
//! `#[pyfunction]` and `#[pymethods]`, and passes the body of each function to the function `barrier` of the crate's errors. A
//! function that returns no `Result` is changed to return one.
//!
//! Proved by the tests in `rust/python/src/errors.rs`. `tests/python/test_tidy.py` checks that every entry has it.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Guards a function, or every function of an `impl`.
#[proc_macro_attribute]
pub fn entry(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    if !tokens.iter().any(|token| is_word(token, "impl")) {
        return guarded(tokens);
    }
    if let Some(TokenTree::Group(methods)) = tokens.pop() {
        let inside = guarded(methods.stream().into_iter().collect());
        tokens.push(Group::new(methods.delimiter(), inside).into());
    }
    tokens.into_iter().collect()
}

/// The same functions, each with a barrier around its body.
fn guarded(tokens: Vec<TokenTree>) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::with_capacity(tokens.len());
    // `returns`: the index in `out` at which the return type of the current function begins, if it has one.
    let (mut is_function, mut returns) = (false, None);
    for token in tokens {
        match &token {
            TokenTree::Group(body) if is_function && body.delimiter() == Delimiter::Brace => {
                let returned: TokenStream = out.drain(returns.unwrap_or(out.len())..).collect();
                out.extend(body_of(&returned, body, returns.is_some()));
                (is_function, returns) = (false, None);
                continue;
            }
            _ if is_word(&token, "fn") => (is_function, returns) = (true, None),
            TokenTree::Punct(end) if is_function && returns.is_none() && end.as_char() == '>' => {
                let is_arrow = matches!(out.last(), Some(TokenTree::Punct(before)) if before.as_char() == '-');
                returns = is_arrow.then_some(out.len() + 1);
            }
            _ => {}
        }
        out.push(token);
    }
    out.into_iter().collect()
}

/// The tokens after the arguments: the return type, which becomes a `Result`, and the body.
fn body_of(returned: &TokenStream, body: &Group, has_arrow: bool) -> TokenStream {
    let is_result = returned.clone().into_iter().next().is_some_and(|first| is_word(&first, "Result"));
    let value = if has_arrow { returned.to_string() } else { "()".to_owned() };
    let arrow = if has_arrow { "" } else { "->" };
    let (outer, barrier) = match is_result {
        true => (value.clone(), "barrier"),
        false => (format!("crate::errors::Result<{value}>"), "barrier_of"),
    };
    // The body keeps its own tokens, so that compiler errors point at it.
    let head: TokenStream = parsed(&format!("{arrow} {outer}"));
    let call: TokenStream = parsed(&format!("crate::errors::{barrier}"));
    let closure: TokenStream =
        parsed(&format!("move || -> {value}")).into_iter().chain([body.clone().into()]).collect();
    let arguments = TokenTree::from(Group::new(Delimiter::Parenthesis, closure));
    let block: TokenStream = call.into_iter().chain([arguments]).collect();
    head.into_iter().chain([Group::new(Delimiter::Brace, block).into()]).collect()
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(name) if name.to_string() == word)
}

#[expect(clippy::panic, reason = "at compile time, where it is an error of the compiler")]
fn parsed(text: &str) -> TokenStream {
    text.parse().unwrap_or_else(|error| panic!("`{text}`: {error}"))
}
