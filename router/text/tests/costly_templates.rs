//! Templates that would read much or make much out of little end with one line: what an operation costs is charged, and
//! counts are looked at before they are memory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use headrace_text::{ChatTemplate, RenderOptions, TemplateError, Tokenizer};
use serde_json::json;
use std::sync::LazyLock;
use support::golden;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    Tokenizer::from_bytes(golden("tiny_byte_fallback.json").to_string().as_bytes()).unwrap()
});

fn render(text: &str) -> Result<String, TemplateError> {
    let messages = [json!({"role": "user", "content": "0123456789"})];
    ChatTemplate::compile(text, &TOKENIZER)?
        .render(&messages, &RenderOptions::default())
        .map(|prompt| prompt.text)
}

fn refused(text: &str) -> TemplateError {
    let head: String = text.chars().take(160).collect();
    let error = match render(text) {
        Ok(rendered) => panic!("{head}: rendered {} bytes", rendered.len()),
        Err(error) => error,
    };
    let line = error.to_string();
    assert!(line.len() < 300 && !line.contains('\n'), "{head}: {line}");
    error
}

/// Large values: a text, the same with another end, a list, one of lists, an object.
const VALUES: &str = "{% set text = 'xy' * 2000000 %}{% set other = text ~ 'z' %}{% set list = [0] * 300000 %}\
    {% set texts = [text] * 1000 %}{% set lists = [list, list] %}{% set map = {'a': text, 'b': list} %}\
    {% set words = ('a ' * 200000).split() %}";

/// As often as instructions allow.
fn over_and_over(statement: &str) -> String {
    format!(
        "{VALUES}{{% for i in range(99999) %}}{{% for j in range(99999) %}}{statement}{{% endfor %}}{{% endfor %}}"
    )
}

fn run_out(statements: &[&str]) {
    for statement in statements {
        let error = refused(&over_and_over(statement));
        assert!(
            matches!(
                error,
                TemplateError::OutOfFuel | TemplateError::TooLong { .. }
            ),
            "{statement}: {error:?}"
        );
    }
}

/// One instruction each, whatever they read: five million times a text of four megabytes was hours.
#[test]
fn operators_cost_what_they_read() {
    run_out(&[
        "{% if text == other %}{% endif %}",
        "{% if text < other %}{% endif %}",
        "{% if 0 < 1 and text <= other <= text %}{% endif %}",
        "{% if 'q' in text %}{% endif %}",
        "{% if (texts in text) in text in text %}{% endif %}",
        "{% if 1 in list %}{% endif %}",
        "{% if other in texts %}{% endif %}",
        "{% if text in map %}{% endif %}",
        "{% if lists == lists + [] %}{% endif %}",
        "{% if map == {'a': text, 'b': list} %}{% endif %}",
        "{% if text[i] %}{% endif %}",
        "{% if text[-1] %}{% endif %}",
        "{% if map[text] %}{% endif %}",
        "{% if text[1:1] %}{% endif %}",
        "{% if list[::-1] %}{% endif %}",
        "{% if loop.changed(text) %}{% endif %}",
        "{% if loop.changed(lists) %}{% endif %}",
        "{% for c in text %}{% break %}{% endfor %}",
        "{% for c in map %}{% break %}{% endfor %}",
    ]);
}

#[test]
fn filters_cost_what_they_read() {
    run_out(&[
        "{% if text | length %}{% endif %}",
        "{% if text | wordcount %}{% endif %}",
        "{% if text | replace('xy', '') %}{% endif %}",
        "{% if text | trim('xy') %}{% endif %}",
        "{% if text | int %}{% endif %}",
        "{% if list | sum %}{% endif %}",
        "{% if list | max %}{% endif %}",
        "{% if texts | min %}{% endif %}",
        "{% if texts | sort %}{% endif %}",
        "{% if texts | unique %}{% endif %}",
        "{% if words | sort %}{% endif %}",
        "{% if [map, map] | sort(attribute='a') %}{% endif %}",
        "{% if [map, map] | groupby('a') %}{% endif %}",
        "{% if map | dictsort(by='value') %}{% endif %}",
        "{% if list | select %}{% endif %}",
        "{% if texts | select('equalto', other) %}{% endif %}",
        "{% if texts | select('in', other) %}{% endif %}",
        "{% if texts | reject('lower') %}{% endif %}",
        "{% if texts | map('length') %}{% endif %}",
        "{% if texts | map(attribute=3) %}{% endif %}",
        "{% if list | selectattr('a' * 100000) %}{% endif %}",
        "{% if list | batch(3) %}{% endif %}",
        "{% if list | slice(3) %}{% endif %}",
        "{% if list | reverse | first %}{% endif %}",
        "{% if list | join %}{% endif %}",
        "{% if ([''] * 300000) | join %}{% endif %}",
        "{% if text | safe %}{% endif %}",
        "{% if map | items %}{% endif %}",
        "{% if text is lower %}{% endif %}",
        "{% if text is endingwith text %}{% endif %}",
        "{% if other is eq text %}{% endif %}",
        "{% if text is sameas (text[:-1] ~ 'y') %}{% endif %}",
        "{% if 1 is in list %}{% endif %}",
    ]);
}

#[test]
fn methods_cost_what_they_read() {
    run_out(&[
        "{% if text.startswith(text) %}{% endif %}",
        "{% if text.startswith(texts) %}{% endif %}",
        "{% if text.count('q') %}{% endif %}",
        "{% if text.rfind('q') %}{% endif %}",
        "{% if text.find('z', 0, 3) %}{% endif %}",
        "{% if text.isspace() %}{% endif %}",
        "{% if text.strip(other) %}{% endif %}",
        "{% if text.split('q') %}{% endif %}",
        "{% if text.replace('x', '') %}{% endif %}",
        "{% if list.count(1) %}{% endif %}",
        "{% if texts.count(other) %}{% endif %}",
        "{% if map.get(text) %}{% endif %}",
        "{% if ''.join(words) %}{% endif %}",
    ]);
}

/// A text of so many characters to cut off was looked through for every character of the other.
#[test]
fn a_long_set_of_characters_is_no_product() {
    let many = "{% set set = range(100000) | join %}{% set set = 'é'.join(range(60000) | map('string') | list) %}";
    let text =
        format!("{many}{{% set text = '1' * 4000000 %}}{{{{ text.strip(set ~ '1') | length }}}}");
    assert_eq!(render(&text).unwrap(), "0");
    let text =
        format!("{many}{{% set text = '1' * 4000000 %}}{{{{ text | trim(set ~ '1') | length }}}}");
    assert_eq!(render(&text).unwrap(), "0");
}

/// Each would be memory before it is charged for: terabytes, the end of the process.
#[test]
fn counts_are_checked_before_the_call() {
    for text in [
        "{{ [1] | batch(1000000000000) }}",
        "{{ [1] | batch(1000000000, 0) }}",
        "{{ [1] | slice(1000000000000) }}",
        "{{ [1] | slice(1000000000, 0) | length }}",
        "{{ [[1]] | map('batch', 1000000000000) | list }}",
        "{{ [1] * 1000000000000 }}",
        "{{ 1000000000000 * 'x' }}",
        // 2⁶³ times two items are 2⁶⁴, which is 0 of 64 bits.
        "{{ ([1, 2] * 9223372036854775808) | list }}",
        "{{ ([1, 2] * 9223372036854775807) | list }}",
        "{{ range(9223372036854775807) | list }}",
        "{{ range(-9223372036854775807, 9223372036854775807, 9223372036854775807) | list }}",
        "{{ range(9223372036854775807, -9223372036854775807, -1) | list }}",
        "{{ ('{0:9999}' * 1000000) | format }}",
        "{{ ('{0:9999}' * 1000000).format(1) }}",
        "{{ ('{0:9999.9999f}' * 10000).format(1.5) }}",
        "{{ ('{a}' * 1000000).format(a='x' * 1000000) }}",
        "{{ ('{a}' * 1000000).format(a=['x' * 1000000] * 9) }}",
        "{{ ('%9999d' * 100000) % ([1] * 100000) }}",
        "{{ ('%r' * 2000) % (['\\x01' * 100000] * 2000) }}",
        "{{ [[[[1]]]] | tojson(indent='x' * 20000000) }}",
        "{{ ([1] * 1000000) | tojson(separators=['x' * 1000000, ':']) }}",
        "{{ (['x' * 30000000] * 1000) in 'abc' }}",
        "{{ (['x' * 30000000] * 1000) | string }}",
        "{{ (['x' * 30000000] * 1000) | tojson }}",
        "{{ (['x' * 30000000] * 1000) | pprint }}",
        "{{ {'a': 1, 'b': 2} | tojson(indent=64, separators=['x' * 30000000, 'y' * 30000000]) }}",
        "{{ {['x' * 30000000]: 1} }}",
        "{{ {([1] * 1000): 1} | tojson }}",
        "{{ dict(**(['x'] * 100000)) }}",
        "{{ raise_exception(*([1] * 1000000)) }}",
        "{{ ('a' * 30000000) | list }}",
        "{{ ('a ' * 15000000).split() | length }}",
        "{{ ('a,' * 15000000).split(',') | length }}",
        "{{ ('a\\n' * 15000000).splitlines() | length }}",
        "{{ strftime_now('%Y' * 1000000) }}",
        "{{ debug() }}",
        "{% include ['x' * 30000000] * 1000 ignore missing %}",
        "{% include 'x' %}",
        "{% extends 'x' * 30000000 %}",
        "{% import 'x' as x %}",
        "{% from 'x' import y %}",
        "{% set a, b = range(100000) %}",
        "{{ 'x'.ljust(9223372036854775807) }}",
        "{{ 'x'.expandtabs(18446744073709551615) ~ '\\t'.expandtabs(18446744073709551615) }}",
    ] {
        refused(text);
    }
}

/// Values that can be changed while others hold them would hold each other in a chain without end, and dropping that
/// takes a stack frame each; or hold themselves, and never be freed.
#[test]
fn nothing_holds_a_loop_or_a_namespace() {
    let many = |statement: &str| {
        format!(
            "{{% set ns = namespace(x=[1]) %}}{{% for i in range(99999) %}}{statement}{{% endfor %}}"
        )
    };
    for statement in [
        "{% for a in [ns.x] %}{% set ns.x = loop %}{% endfor %}",
        "{% for a in [1] %}{% if loop.changed(ns.x) %}{% endif %}{% set ns.x = loop %}{% endfor %}",
        "{% if loop.changed(loop) %}{% endif %}",
        "{% if loop.changed(ns) %}{% endif %}",
        "{% if loop.changed(1, loop) %}{% endif %}",
        "{% if loop.changed(*[ns.x, ns.x]) %}{% endif %}",
        "{% set x = [loop] %}",
        "{% set x = {'a': loop} %}",
        "{% set x = dict(a=loop) %}",
        "{% set x = namespace(a=loop) %}",
        "{% set ns.x = loop %}",
        "{% set ns.x = ns.x | batch(1) %}",
        "{% set ns.x = ns.x | slice(1) %}",
        "{% set ns.x = ns.x | zip %}",
        "{% set ns.x = ns.x | groupby(0) %}",
        "{% set ns.x = [ns.x] %}",
        "{% set ns.x = dict(a=ns.x) %}",
        "{% set ns.x = {'a': ns.x}.items() %}",
        "{% set ns.x = {'a': ns.x} | items %}",
        "{% set ns.x = {'a': ns.x} | dictsort %}",
    ] {
        refused(&many(statement));
    }
}

/// Definitions are instructions, and each call within another copied them all.
#[test]
fn macros_without_end_are_bounded() {
    let many = "{% for i in range(99999) %}{% for j in range(99999) %}{% macro m() %}x{% endmacro %}{% endfor %}{% endfor %}";
    refused(many);
    let within = "{% macro n() %}{% macro m() %}x{% endmacro %}{{ m() }}{% endmacro %}\
        {% for i in range(99999) %}{% macro o() %}x{% endmacro %}{% for j in range(99) %}{% set x = n() %}{% endfor %}{% endfor %}";
    refused(within);
    let chain = "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% with before = ns.x %}\
        {% macro m() %}{{ before }}{% endmacro %}{% set ns.x = m %}{% endwith %}{% endfor %}";
    let _ = render(chain);
    // A block calls itself.
    refused("{% block a %}{{ self.a() }}{% endblock %}");
    refused("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}");
    refused("{% macro a() %}{% call a() %}{{ caller() }}{% endcall %}{% endmacro %}{{ a() }}");
    refused("{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}");
    refused(&over_and_over(
        "{% set l = loop %}{% for x in [1] recursive %}{{ l(text) }}{% endfor %}",
    ));
}

/// A fault of the engine would be the server's, which answers 500 for it; it is the template's.
#[test]
fn a_panic_of_the_engine_is_the_template_s_error() {
    // The place is the remainder by the number of arguments.
    let error = refused("{% for x in [1] %}{{ loop.cycle() }}{% endfor %}");
    assert_eq!(
        error.to_string(),
        "the chat template failed: the template engine gave up on it"
    );
    // The thread goes on, with a budget of its own.
    assert_eq!(render("{{ 'x' * 3 }}").unwrap(), "xxx");
    for text in [
        "{% for x in [1] recursive %}{% set l = loop %}{% block b %}{{ l([1]) }}{% endblock %}{% endfor %}",
        "{{ [1, 2][9223372036854775807:-9223372036854775808:-9223372036854775808] }}",
        "{{ 'ab'[9223372036854775807:-9223372036854775808:-9223372036854775808] }}",
        "{{ [3, 'a', none, [1], {}, 1.5, true] | sort }}",
        "{{ -9223372036854775808 // -1 }}{{ 5 // 0 }}",
        "{{ 170141183460469231731687303715884105727 + 1 }}",
        "{{ 2 ** 1000 }}",
        "{{ 1e308 * 10 | int }}",
        "{{ (1e308 * 10) | int }}{{ (1e308 * 10 * 0) | round(3) }}",
    ] {
        // Either way it ends.
        let _ = render(text);
    }
}

/// What a template says of itself may be long; the answer is not.
#[test]
fn the_words_of_a_refusal_are_bounded() {
    for text in [
        "{{ raise_exception('x' * 30000000) }}",
        "{{ {}[1]['x' * 30000000] | f }}",
        "{{ namespace(**{'x' * 1000000: 1}).a.b }}",
        "{{ range(**{'x' * 1000000: 1}) }}",
    ] {
        let error = render(text).unwrap_err();
        assert!(
            error.to_string().len() < 2200,
            "{}",
            error.to_string().len()
        );
    }
}
