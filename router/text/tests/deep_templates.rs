//! Templates whose text nests so deep that parsing it would take all of the stack end with one line at load; those just
//! below the bound are parsed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use headrace_text::{ChatTemplate, TemplateError, TemplateSources, Tokenizer};
use support::{golden, real_templates};

const LIMIT: usize = 1000;

fn tokenizer() -> Tokenizer {
    Tokenizer::from_bytes(golden("tiny_byte_fallback.json").to_string().as_bytes()).unwrap()
}

/// `{{ head link link … tail }}`.
fn chain(head: &str, link: &str, tail: &str, links: usize) -> String {
    format!("{{{{ {head}{}{tail} }}}}", link.repeat(links))
}

/// Shapes with `n` links: chains, and brackets.
fn shapes_of_expressions(n: usize) -> Vec<(&'static str, String)> {
    let of = |head, link, tail| chain(head, link, tail, n);
    vec![
        ("not", of("", "not ", "x")),
        ("minus", of("", "- ", "1")),
        ("minus of a name", of("", "-", "x")),
        ("attributes", of("a", ".b", "")),
        ("places", of("a", "[0]", "")),
        ("dotted places", of("a", ".0", "")),
        ("calls", of("a", "()", "")),
        ("slices", of("a", "[1:]", "")),
        ("filters", of("a", "|f", "")),
        ("filters of a number", of("1", "|abs", "")),
        ("tests", of("a", " is b", "")),
        ("tests and not", of("a", " is not b", "")),
        ("tests with values", of("a", " is eq -1", "")),
        ("plus", of("a", "+ a", "")),
        ("plus of numbers", of("1", "+ 1", "")),
        ("minus between", of("a", "- a", "")),
        ("times", of("a", "* a", "")),
        ("times of numbers", of("1", "* 1", "")),
        ("through", of("a", "// a", "")),
        ("power", of("a", "** a", "")),
        ("power of numbers", of("1", "** 1", "")),
        ("tilde", of("a", "~ a", "")),
        ("tilde of texts", of("'a'", "~ 'a'", "")),
        ("and", of("a", " and a", "")),
        ("or", of("a", " or a", "")),
        ("or of constants", of("1", " or 0", "")),
        ("equal", of("a", " == a", "")),
        ("in", of("a", " in a", "")),
        ("not in", of("a", " not in a", "")),
        ("if without else", of("a", " if a", "")),
        ("if and else", of("a", " if a else a", "")),
        ("brackets", chain("", "(", "x", n) + &")".repeat(n)),
        ("lists", chain("", "[", "", n) + &"]".repeat(n)),
        ("objects", chain("", "{1:", "", n)),
    ]
}

/// Shapes of brackets that go on behind their end, and of blocks.
fn shapes_of_blocks(n: usize) -> Vec<(&'static str, String)> {
    vec![
        (
            "brackets that go on",
            format!(
                "{{{{ {}x{} }}}}",
                "(".repeat(n / 9),
                ")+a|b.c[d]+e".repeat(n / 9)
            ),
        ),
        (
            "a list that goes on",
            format!(
                "{{{{ {}x{} }}}}",
                "[".repeat(n / 9),
                ", a]+a|b.c[d]+e".repeat(n / 9)
            ),
        ),
        ("no end", format!("{{{{ {}", "(-".repeat(n))),
        ("if", "{% if a %}".repeat(n) + &"{% endif %}".repeat(n)),
        (
            "for",
            "{% for a in b %}".repeat(n) + &"{% endfor %}".repeat(n),
        ),
        ("set", "{% set a %}".repeat(n) + &"{% endset %}".repeat(n)),
        (
            "filter",
            "{% filter upper %}".repeat(n) + &"{% endfilter %}".repeat(n),
        ),
        (
            "call",
            "{% call a() %}".repeat(n) + &"{% endcall %}".repeat(n),
        ),
        (
            "macro",
            "{% macro a() %}".repeat(n) + &"{% endmacro %}".repeat(n),
        ),
        (
            "with",
            "{% with a = b %}".repeat(n) + &"{% endwith %}".repeat(n),
        ),
        (
            "autoescape",
            "{% autoescape a %}".repeat(n) + &"{% endautoescape %}".repeat(n),
        ),
        (
            "elif",
            format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(n)),
        ),
        (
            "elif within else",
            "{% if a %}{% elif a %}{% else %}".repeat(n) + &"{% endif %}".repeat(n),
        ),
        (
            "generation",
            "{% generation %}".repeat(n) + &"{% endgeneration %}".repeat(n),
        ),
    ]
}

/// Shapes of what stands in tags.
fn shapes_of_tags(n: usize) -> Vec<(&'static str, String)> {
    vec![
        (
            "names of a set",
            format!("{{% set a{} = 1 %}}", ".a".repeat(n)),
        ),
        (
            "brackets of a set",
            format!("{{% set {}a{} = 1 %}}", "(".repeat(n), ",)".repeat(n)),
        ),
        (
            "brackets of a for",
            format!(
                "{{% for {}a{} in b %}}{{% endfor %}}",
                "(".repeat(n),
                ",)".repeat(n)
            ),
        ),
        (
            "filters of a block",
            format!("{{% filter a{} %}}{{% endfilter %}}", "|a".repeat(n)),
        ),
        ("dots of a filter", chain("a|b", ".b", "", n)),
        (
            "after a comma",
            format!("{{{{ [1, 2, {}1] }}}}", "- ".repeat(n)),
        ),
        (
            "a default of a macro",
            format!("{{% macro a(b={}1) %}}{{% endmacro %}}", "- ".repeat(n)),
        ),
        (
            "a named argument",
            format!("{{{{ a(b={}1) }}}}", "not ".repeat(n)),
        ),
        ("a key", format!("{{{{ {{'a': {}1}} }}}}", "not ".repeat(n))),
        (
            "within a slice",
            format!("{{{{ a[1:{}1] }}}}", "- ".repeat(n)),
        ),
    ]
}

fn shapes(n: usize) -> Vec<(&'static str, String)> {
    let mut all = shapes_of_expressions(n);
    all.extend(shapes_of_blocks(n));
    all.extend(shapes_of_tags(n));
    all
}

/// Each of these was the end of the process, or would be with a longer chain.
#[test]
fn a_template_that_nests_without_end_is_refused_at_load() {
    let tokenizer = tokenizer();
    for (name, text) in shapes(60_000) {
        let error = ChatTemplate::compile(&text, &tokenizer)
            .map(|_| ())
            .unwrap_err();
        assert!(
            matches!(error, TemplateError::Compile(_)),
            "{name}: {error:?}"
        );
        let line = error.to_string();
        assert!(
            line.contains("(line 1)") && line.len() < 200,
            "{name}: {line}"
        );
    }
}

/// What the bound lets through does not come near the end of the stack, whatever it is made of.
#[test]
fn a_template_at_the_bound_is_parsed_or_refused_by_the_parser() {
    let tokenizer = tokenizer();
    let mut parsed = 0;
    for links in [LIMIT - 10, LIMIT / 2 - 10, LIMIT / 3 - 10, 140, 70] {
        for (name, text) in shapes(links) {
            match ChatTemplate::compile(&text, &tokenizer) {
                Ok(template) => {
                    parsed += 1;
                    assert!(template.depth() <= LIMIT, "{name}");
                }
                Err(TemplateError::Compile(reason)) => {
                    assert!(reason.len() < 200, "{name}: {reason}");
                }
                Err(other) => panic!("{name}: {other:?}"),
            }
        }
    }
    assert!(parsed > 100, "{parsed}");
}

/// Each level of the tree is counted: a chain of n links is at least n deep.
#[test]
fn every_link_counts() {
    let tokenizer = tokenizer();
    let mut counted = 0;
    for (name, text) in shapes(40) {
        if let Ok(template) = ChatTemplate::compile(&text, &tokenizer) {
            counted += 1;
            let least = if text.contains("+a|b.c") { 4 * 4 } else { 40 };
            assert!(template.depth() >= least, "{name}: {}", template.depth());
        }
    }
    assert!(counted > 40, "{counted}");
}

#[test]
fn the_refusal_names_the_file_and_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat_template.jinja");
    std::fs::write(
        &path,
        format!("{{{{ 1 }}}}\n\n{}", chain("", "not ", "x", 5000)),
    )
    .unwrap();
    let sources = TemplateSources {
        chat_template: Some(path.clone()),
        tokenizer_config: None,
    };
    let error = ChatTemplate::load(&sources, &tokenizer())
        .map(|_| ())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{}: the chat template does not compile: it nests more than 1000 levels deep (line 3)",
            path.display()
        )
    );
}

#[test]
fn a_template_is_bounded_in_bytes_and_in_its_names() {
    let tokenizer = tokenizer();
    let refusal = |text: &str| {
        ChatTemplate::compile(text, &tokenizer)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let head = "the chat template does not compile: ";
    assert_eq!(
        refusal(&"x".repeat((1 << 20) + 1)),
        format!("{head}it has more than 1048576 bytes (line 1)")
    );
    assert_eq!(
        refusal(&format!("\n{{{{ {} }}}}", "n".repeat(257))),
        format!("{head}a name of more than 256 bytes (line 2)")
    );
}

/// The engine computes what it takes for constant while it compiles: these were gigabytes.
#[test]
fn constants_are_not_multiplied_at_load() {
    let tokenizer = tokenizer();
    for product in [
        "'x' * 99999999",
        "99999999 * 'x'",
        "('x' * 99999) * 9999",
        "(('x') * 9999) * 9999",
        "'x' * 9999 * 9999",
        "('x' 'y') * 99999999",
        "'x' * (99999999 + 1 - 1)",
        "[1] * 99999999",
        "[0, 'x' * 99999999]",
        "'x'\n*\n99999999",
        "-1 ** 2 * 'x' * 99999999",
    ] {
        let many = format!(
            "{{% if false %}}{}{{% endif %}}ok",
            format!("{{{{ [{product}, 1] }}}}").repeat(2000)
        );
        let template = ChatTemplate::compile(&many, &tokenizer).unwrap();
        let prompt = template
            .render(&[], &headrace_text::RenderOptions::default())
            .unwrap();
        assert_eq!(prompt.text, "ok", "{product}");
    }
    let template = ChatTemplate::compile(
        "{{ 2 * 3 * 4 }}{{ '=' * 3 }}{{ [1] * 2 }}{{ 2 ** 3 * 2 }}",
        &tokenizer,
    )
    .unwrap();
    let prompt = template
        .render(&[], &headrace_text::RenderOptions::default())
        .unwrap();
    assert_eq!(prompt.text, "24===[1, 1]16");
}

/// No real template is refused, nor would one ten times as deep.
#[test]
fn real_templates_are_far_from_the_bound() {
    let Some(paths) = real_templates() else {
        return;
    };
    let tokenizer = tokenizer();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let depth = ChatTemplate::compile(&text, &tokenizer).unwrap().depth();
        assert!(
            (1..LIMIT / 10).contains(&depth),
            "{}: {depth}",
            path.display()
        );
        assert!(text.len() < (1 << 20) / 10);
    }
}
