//! Templates that would take all memory or time end with one line, whatever they grow.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use headrace_text::{ChatTemplate, RenderOptions, TemplateError, Tokenizer};
use serde_json::json;
use support::golden;

fn render(text: &str) -> Result<String, TemplateError> {
    let tokenizer =
        Tokenizer::from_bytes(golden("tiny_byte_fallback.json").to_string().as_bytes()).unwrap();
    let messages = [json!({"role": "user", "content": "0123456789"})];
    ChatTemplate::compile(text, &tokenizer)?
        .render(&messages, &RenderOptions::default())
        .map(|prompt| prompt.text)
}

/// A hundred rounds over `{% set ns.x = … %}`, each from what the last one left.
fn rounds(start: &str, step: &str) -> String {
    format!(
        "{{% set ns = namespace(x={start}) %}}{{% for i in range(100) %}}{{% set ns.x = {step} %}}{{% endfor %}}end"
    )
}

/// What grows by a factor is stopped; a hundred doublings would be 10³¹ bytes.
#[test]
fn a_template_that_doubles_is_bounded_in_memory() {
    let message = "messages[0].content";
    for step in [
        "ns.x ~ ns.x",
        "ns.x + ns.x",
        "ns.x * 2",
        "ns.x | replace('0', ns.x)",
        "ns.x.replace('0', ns.x)",
        "[ns.x, ns.x] | join",
        "''.join([ns.x, ns.x])",
        "ns.x.join(['a', 'b', ns.x])",
        "'%s%s' | format(ns.x, ns.x)",
        "'{}{}'.format(ns.x, ns.x)",
        "'%s%s' % [ns.x, ns.x]",
        "(ns.x | list) | join('aa')",
        "ns.x | tojson | tojson",
        "[ns.x, ns.x] | string",
        "[ns.x, ns.x] | tojson",
        "ns.x | center((ns.x | length) * 2)",
        "ns.x.ljust((ns.x | length) * 2)",
        "ns.x | escape ~ '&&&&' ~ ns.x",
        "('&' ~ ns.x) | forceescape ~ ns.x",
        "ns.x | indent(ns.x) ~ ns.x",
    ] {
        let error = render(&rounds(message, step)).unwrap_err();
        assert!(
            matches!(
                error,
                TemplateError::TooLong { .. } | TemplateError::Render(_)
            ),
            "{step}: {error:?}"
        );
        assert!(error.to_string().len() < 200, "{step}: {error}");
    }
}

#[test]
fn captures_macros_and_lists_are_bounded_too() {
    let literal = "x".repeat(100_000);
    for text in [
        "{% set ns = namespace(x='0123456789') %}{% for i in range(100) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}\
         {% set ns.x = y %}{% endfor %}"
            .to_owned(),
        "{% macro f(x, n) %}{% if n %}{{ f(x, n - 1) }}{{ f(x, n - 1) }}{% else %}{{ x }}{% endif %}{% endmacro %}\
         {% set y = f(messages[0].content, 24) %}"
            .to_owned(),
        format!("{{% set y %}}{{% for i in range(99999) %}}{literal}{{% endfor %}}{{% endset %}}"),
        format!("{{% for i in range(99999) %}}{literal}{{% endfor %}}"),
        format!("{{% filter upper %}}{{% for i in range(99999) %}}{literal}{{% endfor %}}{{% endfilter %}}"),
        rounds("[1]", "ns.x + ns.x"),
        rounds("[1]", "ns.x * 2"),
        rounds("[1]", "(ns.x | list) + (ns.x | list)"),
        rounds("[1]", "[ns.x, ns.x]"),
        rounds("[1]", "{'a': ns.x, 'b': ns.x}"),
        rounds("[1]", "[ns.x, ns.x] | map('string') | list"),
        "{% set ns = namespace(all=[]) %}{% for i in range(99999) %}\
         {% set ns.all = ns.all + ['0123456789' * 100000] %}{% endfor %}"
            .to_owned(),
        "{% set ns = namespace(all=[]) %}{% for i in range(99999) %}\
         {% set ns.all = ns.all + [range(99999) | list] %}{% endfor %}"
            .to_owned(),
        "{{ '%999999999d' | format(1) }}".to_owned(),
        "{{ '{:>999999999}'.format(1) }}".to_owned(),
        "{{ 'x'.ljust(99999999999) }}".to_owned(),
        "{{ 'x' | center(99999999999) }}".to_owned(),
        "{{ 'x'.zfill(99999999999) }}".to_owned(),
        "{{ '\\t'.expandtabs(99999999999) }}".to_owned(),
    ] {
        let error = render(&text).unwrap_err();
        let head: String = text.chars().take(120).collect();
        assert!(error.to_string().len() < 200, "{head}: {error}");
    }
}

/// Dropping a list frees what is in it, one stack frame each.
#[test]
fn nesting_is_bounded() {
    for text in [
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}",
        "{% set ns = namespace(x={}) %}{% for i in range(99999) %}{% set ns.x = {'a': ns.x} %}{% endfor %}",
        "{% set top = namespace(x=none) %}{% for i in range(99999) %}{% set top.x = namespace(x=top.x) %}{% endfor %}",
        "{% set top = namespace(x=none) %}{% for i in range(99999) %}{% set n = namespace() %}{% set n.x = top.x %}\
         {% set top.x = n %}{% endfor %}",
        "{% set ns = namespace() %}{% set ns.x = ns %}",
        "{% set ns = namespace(x=0) %}{% for i in range(99999) %}{% set ns.x = dict(a=ns.x) %}{% endfor %}",
    ] {
        let result = render(text);
        assert!(
            matches!(&result, Err(error) if error.to_string().len() < 200),
            "{text}: {result:?}"
        );
    }
}

/// It went round for ever: each place of an empty text is one more.
#[test]
fn counting_an_empty_text_ends() {
    assert_eq!(render("{{ 'aaa'.count('') }}").unwrap(), "4");
    assert_eq!(render("{{ ''.count('') }}").unwrap(), "1");
}

/// What real templates do over long chats is far below the bounds.
#[test]
fn long_chats_are_within_the_bounds() {
    let tokenizer =
        Tokenizer::from_bytes(golden("tiny_byte_fallback.json").to_string().as_bytes()).unwrap();
    let text = "{% set ns = namespace(text='', ids=[]) %}{% for m in messages %}\
                {% set ns.text = ns.text ~ (m.content | trim) ~ '\\n' %}{% set ns.ids = ns.ids + [loop.index] %}\
                {% endfor %}{{ ns.text }}{{ ns.ids | length }}";
    let template = ChatTemplate::compile(text, &tokenizer).unwrap();
    let message = json!({"role": "user", "content": "x".repeat(1000)});
    let messages = vec![message; 1000];
    let prompt = template
        .render(&messages, &RenderOptions::default())
        .unwrap();
    assert_eq!(prompt.text.len(), 1001 * 1000 + 4);
}
