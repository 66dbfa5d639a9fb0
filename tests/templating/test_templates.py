"""Templates say only what they may, reach only case data, and stop before they cost anything."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import string
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edison_ci.templating.runtime import ENVIRONMENT, FILTERS, type_name
from edison_ci.templating.syntax import FILTER_NAMES, analyse_template
from edison_ci.templating.templates import (
    MAX_SOURCE,
    MissingValueError,
    RenderError,
    Syntax,
    TemplateFaults,
    Use,
    as_text,
    compile_template,
)
from edison_ci.templating.variables import MAX_OUTPUT, analyse_variables
from tests.conftest import ROOT
from tests.timing import PATIENCE_S, slowness

if TYPE_CHECKING:
    from edison_ci.documents.marks import Fault, Json


def rendered(source: str, *, syntax: Syntax = "jinja", **values: Any) -> str:
    return compile_template(source, syntax=syntax).render(values)


def faults(source: str) -> list[Fault]:
    with pytest.raises(TemplateFaults) as caught:
        compile_template(source)
    return caught.value.faults


def missing(source: str, **values: Any) -> str:
    with pytest.raises(MissingValueError) as caught:
        rendered(source, **values)
    return caught.value.name


def refusal(source: str, **values: Any) -> str:
    with pytest.raises(RenderError) as caught:
        rendered(source, **values)
    return str(caught.value)


# --- what is allowed ------------------------------------------------------------------------------

PERSON: dict[str, Json] = {"name": "Ada", "tags": ["x", "y"], "0": "zero", "a b": "spaced"}

ALLOWED_TEXTS = [
    ("plain text", "plain text"),
    ("{{ n }}", "3"),
    ("{{n}}{{ n}}{{n }}", "333"),
    ("{{ p.name }}", "Ada"),
    ("{{ p['name'] }}", "Ada"),
    ("{{ p['a b'] }}", "spaced"),
    ("{{ p.tags[0] }}{{ p.tags.1 }}", "xy"),
    ("{{ p.tags[-1] }}", "y"),
    ("{{ xs[i] }}", "b"),
    ("{{ p[key] }}", "Ada"),
    ("{{ p['0'] }}", "zero"),
    ("{% if yes %}a{% endif %}", "a"),
    ("{% if no %}a{% elif yes %}b{% else %}c{% endif %}", "b"),
    ("{% if no %}a{% elif no %}b{% else %}c{% endif %}", "c"),
    ("{% if n == 3 and not no or no %}a{% endif %}", "a"),
    ("{% if n != 3 %}a{% else %}b{% endif %}", "b"),
    ("{% if 1 < n <= 3 %}a{% endif %}{% if n > 2 >= 2 %}b{% endif %}", "ab"),
    ("{% if n > -1 %}a{% endif %}", "a"),
    ("{% if 'b' in xs %}a{% endif %}{% if 'z' not in xs %}b{% endif %}", "ab"),
    ("{% if 'lo' in text %}a{% endif %}{% if 'name' in p %}b{% endif %}", "ab"),
    ("{% if nothing == none %}a{% endif %}", "a"),
    ("{% for x in xs %}<{{ x }}>{% endfor %}", "<a><b>"),
    ("{% for x in empty %}{{ x }}{% else %}none{% endfor %}", "none"),
    ("{% for x in xs if x != 'a' %}{{ x }}{% endfor %}", "b"),
    ("{% for x in p.tags %}{{ loop.index }}{{ x }}{% endfor %}", "1x2y"),
    ("{% for x in xs %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}", "a, b"),
    (
        "{% for x in xs %}{{ loop.index0 }}{{ loop.first }}{{ loop.length }}"
        "{{ loop.revindex }}{{ loop.revindex0 }};{% endfor %}",
        "0true221;1false210;",
    ),
    ("{% for row in rows %}{% for x in row %}{{ x }}{% endfor %};{% endfor %}", "12;3;"),
    (
        "{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}"
        "{{ loop.index }}{% endfor %}",
        "121122",
    ),
    ("{% for x in xs %}{{ x }}{% endfor %}{{ n }}", "ab3"),
    ("{{ no or text }}{{ yes and n }}{{ not yes }}{{ n == 3 }}", "hello3falsetrue"),
    (
        "{{ true }}{{ false }}{{ none }}{{ 1 }}{{ 1.5 }}{{ 'x' }}{{ -2 }}",
        "truefalsenull11.5x-2",
    ),
    ("a{# a comment {{ n }} #}b", "ab"),
    ("{% raw %}{{ n }} {% if %}{% endraw %}", "{{ n }} {% if %}"),
    ("a  {{- n -}}  b", "a3b"),
    ("a\n{%- if yes -%}\n b \n{%- endif -%}\nc", "abc"),
    ("a {%+ if yes %} b{% endif %}", "a  b"),
    ("one }} two %} three #} {{ n }}", "one }} two %} three #} 3"),
    ("{ n } {n} {\n{{ n }}\n}", "{ n } {n} {\n3\n}"),
    ("tail\n{{ n }}\n", "tail\n3\n"),
    ("{{ 'it''s' }}", "its"),
    (r"{{ 'a\n\tb\u00e9' }}", "a\n\tbé"),
]


def test_what_is_allowed_renders(subtests: pytest.Subtests) -> None:
    values: dict[str, Json] = {
        "n": 3, "p": PERSON, "xs": ["a", "b"], "i": 1, "key": "name", "yes": True, "no": False,
        "text": "hello", "nothing": None, "empty": [], "rows": [[1, 2], [3]],
    }  # fmt: skip
    for source, expected in ALLOWED_TEXTS:
        with subtests.test(source=source):
            assert compile_template(source).render(values) == expected


FILTERED_TEXTS = [
    ("{{ gone|default('d') }}", "d"),
    ("{{ gone|default }}", ""),
    ("{{ gone|default(7) }}", "7"),
    ("{{ gone|default(s) }}", " Hello World "),
    ("{{ p.gone|default('d') }}{{ gone.a.b|default('e') }}", "de"),
    ("{{ xs[9]|default('d') }}{{ xs['a']|default('e') }}{{ p[0]|default('f') }}", "def"),
    ("{{ empty|default('d') }}{{ empty|default('d', true) }}", "d"),
    ("{{ zero|default(default_value='d', boolean=true) }}", "d"),
    ("{{ xs|first }}{{ xs|last }}{{ s|trim|first }}{{ s|trim|last }}", "abHd"),
    ("{{ none_at_all|first|default('d') }}", "d"),
    ("{{ xs|join }}{{ xs|join(', ') }}{{ nums|join('+') }}", "aba, b1+true+null+[2]"),
    ("{{ people|join('/', attribute='n') }}{{ people|join(d='-', attribute='n') }}", "x/1x-1"),
    ("{{ xs|length }}{{ s|length }}{{ p|length }}", "2131"),
    ("{{ s|lower }}{{ s|upper }}{{ p|upper }}", ' hello world  HELLO WORLD {"K": "V"}'),
    ("{{ s|trim }}{{ 'xxaxx'|trim('x') }}{{ zero|trim }}", "Hello Worlda0"),
    ("{{ s|trim|replace('o', '0') }}", "Hell0 W0rld"),
    ("{{ s|trim|replace('o', '0', 1) }}{{ 'aa'|replace('a', 'b', 0) }}", "Hell0 Worldaa"),
    ("{{ 'aa'|replace('a', 'b', -1) }}{{ 'aa'|replace(old='a', new='c') }}", "bbcc"),
    ("{{ 'ab'|replace('', '.') }}", ".a.b."),
    ("{{ p|tojson }}{{ s|tojson }}", '{"k": "v"}" Hello World "'),
    ("{{ p|tojson(2) }}", '{\n  "k": "v"\n}'),
    ("{{ p|tojson(indent=99) }}", '{\n        "k": "v"\n}'),
    ("{{ long|truncate(11) }}", "one two..."),
    ("{{ long|truncate(11, true) }}", "one two ..."),
    ("{{ long|truncate(9, end='', leeway=0) }}", "one two"),
    ("{{ s|truncate }}{{ 'abcdefgh'|truncate(5) }}", " Hello World abcdefgh"),
    ("{{ zero|truncate(3) }}", "0"),
    ("{% for x in people|first|default(xs) %}{% endfor %}", None),
]


def test_every_filter_takes_what_jinja2_takes(subtests: pytest.Subtests) -> None:
    values: dict[str, Json] = {
        "s": " Hello World ", "xs": ["a", "b"], "p": {"k": "v"}, "empty": "", "zero": 0,
        "nums": [1, True, None, [2]], "people": [{"n": "x"}, {"n": 1}], "none_at_all": [],
        "long": "one two three four five",
    }  # fmt: skip
    for source, expected in FILTERED_TEXTS:
        with subtests.test(source=source):
            template = compile_template(source)
            if expected is None:
                with pytest.raises(
                    RenderError, match="for iterates over a list, not over an object"
                ):
                    template.render(values)
            else:
                assert template.render(values) == expected


def test_these_are_all_the_filters() -> None:
    assert FILTER_NAMES == (
        "default, first, join, last, length, lower, replace, tojson, trim, truncate, upper"
    )
    assert set(FILTERS) == set(FILTER_NAMES.split(", "))
    assert ENVIRONMENT.globals == {} and ENVIRONMENT.tests == {}


@settings(deadline=None)
@given(text=st.text(max_size=60), length=st.integers(0, 40), words=st.booleans())
def test_truncate_is_jinja2s_own(text: str, length: int, words: bool) -> None:
    from jinja2.filters import do_truncate

    template = compile_template("{{ t|truncate(n, w, e) }}")
    values: dict[str, Json] = {"t": text, "n": length, "w": words, "e": "."}
    if length < 1:
        with pytest.raises(RenderError, match="at least 1"):
            template.render(values)
    else:
        assert template.render(values) == do_truncate(ENVIRONMENT, text, length, words, ".")


# --- what is refused ------------------------------------------------------------------------------


REFUSED_TAGS = [
    ("{{ f() }}", 3, "calls are not allowed"),
    ("{{ x.upper() }}", 3, "calls are not allowed"),
    ("{{ range(9) }}", 3, "calls are not allowed"),
    ("{{ x + 1 }}", 3, "arithmetic"),
    ("{{ 1 - x }}", 3, "arithmetic"),
    ("{{ x * 2 }}", 3, "arithmetic"),
    ("{{ x / 2 }}", 3, "arithmetic"),
    ("{{ x // 2 }}", 3, "arithmetic"),
    ("{{ x % 2 }}", 3, "arithmetic"),
    ("{{ x ** 2 }}", 3, "arithmetic"),
    ("{{ -x }}", 3, "arithmetic"),
    ("{{ +x }}", 3, "arithmetic"),
    ("{{ x ~ 'a' }}", 3, "~ is not allowed"),
    ("{% macro m() %}{% endmacro %}", 3, "macros are not allowed"),
    ("{% include 'a' %}", 3, "includes are not allowed"),
    ("{% import 'a' as b %}", 3, "imports are not allowed"),
    ("{% from 'a' import b %}", 3, "imports are not allowed"),
    ("{% extends 'a' %}", 3, "extends is not allowed"),
    ("{% set a = 1 %}", 3, "set is not allowed"),
    ("{% set a %}b{% endset %}", 3, "set is not allowed"),
    ("{% with a = 1 %}{% endwith %}", 3, "with is not allowed"),
    ("{% call m() %}{% endcall %}", 3, "call blocks are not allowed"),
    ("{% filter upper %}{% endfilter %}", 3, "filter blocks are not allowed"),
    ("{% block b %}{% endblock %}", 3, "blocks are not allowed"),
    ("{% autoescape true %}{% endautoescape %}", 3, "autoescape is not allowed"),
    ("{{ x is defined }}", 3, "tests ('is ...') are not allowed"),
    ("{% if x is not none %}{% endif %}", 6, "tests ('is ...') are not allowed"),
    ("{{ x if y else z }}", 3, "inline if is not allowed"),
    ("{{ x[1:2] }}", 3, "slices are not allowed"),
    ("{{ x[:] }}", 3, "slices are not allowed"),
    ("{{ x[1, 2] }}", 3, "an index is a number, a quoted key or a variable"),
    ("{{ x[1.5] }}", 3, "an index is a number, a quoted key or a variable"),
    ("{{ x[y.z] }}", 3, "an index is a number, a quoted key or a variable"),
    ("{{ x[-y] }}", 3, "an index is a number, a quoted key or a variable"),
    ("{{ [1, 2] }}", 3, "lists are not allowed"),
    ("{{ {'a': 1} }}", 3, "maps are not allowed"),
    ("{{ (1, 2) }}", 4, "tuples are not allowed"),
    ("{{ x, y }}", 3, "tuples are not allowed"),
    ("{{ x|attr('y') }}", 5, "filter 'attr' is not allowed"),
    ("{{ x|upper|safe }}", 11, "filter 'safe' is not allowed"),
    ("{{ x|map('upper')|join }}", 5, "filter 'map' is not allowed"),
    ("{{ x|_get('a', 'b') }}", 5, "filter '_get' is not allowed"),
    ("{{ x|join(*y) }}", 5, "starred arguments are not allowed"),
    ("{{ x|join(**y) }}", 5, "starred arguments are not allowed"),
    ("{{ x|replace('a') }}", 5, "replace: missing a required argument: 'new'"),
    ("{{ x|upper(1) }}", 5, "upper: too many positional arguments"),
    ("{{ x|join(sep=',') }}", 5, "join: got an unexpected keyword argument 'sep'"),
    ("{{ x|join(',', d=',') }}", 5, "join: multiple values for argument 'd'"),
    ("{{ x|join(d='', d='') }}", 5, "join: an argument is given twice"),
    ("{{ x|join(1) }}", 5, "join: d is a number, not a text"),
    ("{{ x|truncate('5') }}", 5, "truncate: length is a text, not a whole number"),
    ("{{ x|truncate(5.5) }}", 5, "truncate: length is 5.5, not a whole number"),
    ("{{ x|truncate(5, 1) }}", 5, "truncate: killwords is a number, not a boolean"),
    ("{{ x|tojson(true) }}", 5, "tojson: indent is a boolean, not a whole number"),
    ("{% for x in y recursive %}{% endfor %}", 3, "recursive loops are not allowed"),
    ("{% for a, b in y %}{% endfor %}", 7, "a loop has one variable"),
    ("{% for x in [1] %}{% endfor %}", 12, "lists are not allowed"),
    ("{% for x in 'abc' %}{% endfor %}", 12, "a loop iterates over a list of the case"),
    ("{% for x in a or b %}{% endfor %}", 12, "a loop iterates over a list of the case"),
    ("{% for x in range(3) %}{% endfor %}", 12, "calls are not allowed"),
    ("{% for _x in y %}{% endfor %}", 7, "'_x' is not a variable name"),
    ("{% for loop in y %}{% endfor %}", 7, "'loop' is reserved"),
    ("{% for self in y %}{% endfor %}", 7, "'self' is reserved"),
    ("{{ _x }}", 3, "'_x' is not a variable name"),
    ("{{ __class__ }}", 3, "'__class__' is not a variable name"),
    ("{{ naïve }}", 3, "'naïve' is not a variable name"),
    ("{{ self }}", 3, "'self' is reserved"),
    ("{{ loop }}", 3, "loop is not a variable"),
    ("{{ loop.index }}", 3, "loop is not a variable"),
    ("{% for x in y %}{{ loop }}{% endfor %}", 19, "loop is not a variable"),
    ("{% for x in y %}{{ loop.cycle }}{% endfor %}", 19, "loop has no such value"),
    ("{% for x in y %}{{ loop['index'] }}{% endfor %}", 19, "loop has no such value"),
    ("{% for x in y if loop.first %}{% endfor %}", 17, "loop is not a variable"),
    ("{% for x in y %}{% else %}{{ loop.index }}{% endfor %}", 29, "loop is not a variable"),
    ("{{ 1e999 }}", 3, "the number is out of range"),
    ("{{ -1e999 }}", 4, "the number is out of range"),
    ("{{ 0x" + "f" * 400 + " }}", 3, "the number is out of range"),
    ("{{ " + "9" * 5000 + " }}", None, "a number has too many digits"),
    (r"{{ x|default('\ud800') }}", 13, "a lone surrogate is not a character"),
    (r"{{ x|replace('\d', '') }}", 13, r"invalid escape sequence '\d'"),
    ("{{ x }", 5, "unexpected '}'"),
    ("{{ x ? y }}", 5, "unexpected char '?'"),
    ("{{ }}", 3, "Expected an expression"),
    ("{% if x %}", 10, "Unexpected end of template"),
    ("{% endif %}", 3, "unknown tag 'endif'"),
    ("{% do x %}", 3, "unknown tag 'do'"),
    ("{% trans %}x{% endtrans %}", 3, "unknown tag 'trans'"),
    ("{% break %}", 3, "unknown tag 'break'"),
    ("{# never closed", 2, "Missing end of comment tag"),
    ("{% raw %}never closed", 9, "Missing end of raw directive"),
    ("{{ a b }}", 5, "expected token 'end of print statement', got 'b'"),
    ("{{ 'open }}", 3, "unexpected char"),
    ("{{ x! }}", 4, "unexpected char '!'"),
]  # fmt: skip


def test_a_refusal_names_its_line_column_and_reason(subtests: pytest.Subtests) -> None:
    # The text before holds the same words and a tag of its own, so that only a real position fits.
    before = "x y loop self upper {{ ok }} attr\n"
    for tag, offset, reason in REFUSED_TAGS:
        with subtests.test(tag=tag):
            found = faults(f"{before}an x: {tag} x\n")
            assert reason in found[0].message
            assert found[0].code == "template"
            assert found[0].at == ((1, 6 + offset) if offset is not None else (0, 0))


def test_every_refusal_of_a_template_is_reported_at_once() -> None:
    found = faults("{{ f() }} {{ a + b }}\n{% set x = 1 %}{{ y|safe }}\n{{ _z }}")
    assert [fault.at for fault in found] == [(0, 3), (0, 13), (1, 3), (1, 20), (2, 3)]


def test_a_refusal_says_what_to_do_instead() -> None:
    assert faults("{{ x|safe }}")[0].hint == f"allowed: {FILTER_NAMES}"
    assert "use the filter default" in faults("{{ x is defined }}")[0].message
    assert "use {% if %}" in faults("{{ x if y }}")[0].message
    assert faults("{{ x|replace('a') }}")[0].hint == "replace takes old, new, count"
    assert faults("{{ x|first(1) }}")[0].hint == "first takes no arguments"
    assert "loop.index" in faults("{% for x in y %}{{ loop.nth }}{% endfor %}")[0].hint


def test_positions_survive_whitespace_control_comments_and_carriage_returns() -> None:
    source = "a  \r\n\r\n  {%- raw -%} {{ f() }} {%- endraw -%}  \r\n{#- f() -#} b\rc {{- f() }}"
    (fault,) = faults(source)
    assert fault.at == (3, 20)
    assert source.split("\n")[3][20:].startswith("f()")


@pytest.mark.parametrize(
    "source",
    [
        "{% if a %}" * 65 + "{% endif %}" * 65,
        "{{ " + "not " * 900 + "a }}",
        "{{ " + "(" * 5_000 + "a" + ")" * 5_000 + " }}",
        "{{ " + " and ".join("a" * 3_000) + " }}",
        "{{ a" + ".b" * 3_000 + " }}",
        "{{ a" + "|upper" * 3_000 + " }}",
        "{{ " + "[" * 10_000 + " }}",
        "".join(f"{{% for a{i} in x %}}" for i in range(11)) + "{% endfor %}" * 11,
    ],
)
def test_deep_nesting_is_refused_before_python_chokes_on_it(source: str) -> None:
    started = time.process_time()
    assert faults(source)[0].message == "the template is nested too deeply"
    assert time.process_time() - started < 1


def test_ten_loops_and_sixty_conditions_inside_each_other_are_fine() -> None:
    loops = "".join(f"{{% for a{i} in x %}}" for i in range(10)) + "!" + "{% endfor %}" * 10
    assert rendered(loops, x=[1]) == "!"
    assert rendered("{% if x %}" * 60 + "!" + "{% endif %}" * 60, x=1) == "!"


def test_a_template_of_many_parts_is_refused_in_time() -> None:
    started = time.process_time()
    assert "more than 5,000 parts" in faults("{{a}}" * 9_000)[0].message
    assert f"at most {MAX_SOURCE:,}" in faults("{{a}}" + " " * MAX_SOURCE)[0].message
    assert time.process_time() - started < 2
    assert rendered("x" * 200_000) == "x" * 200_000


# --- escapes --------------------------------------------------------------------------------------

ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ x.__class__ }}",
    "{{ x['__class__'] }}",
    "{{ x.__class__.__base__ }}",
    "{{ x|attr('__class__') }}",
    "{{ x|attr('\\x5f\\x5fclass\\x5f\\x5f') }}",
    "{{ '{0.__class__}'.format(x) }}",
    "{{ '{0.__class__}'|format(x) }}",
    "{{ '{a.__class__}'.format_map(x) }}",
    "{{ ('{0.__class__}'|string).format }}",
    "{% set f = '{0.__class__}'.format %}{{ f(x) }}",
    "{{ x|map('format', x)|list }}",
    "{{ [x]|map(attribute='__class__')|list }}",
    "{{ x|_getattr('__class__') }}",
    "{{ xs|join(attribute='__class__') }}",
    "{{ xs|join(attribute='__class__.__name__') }}",
    "{{ xs|sum(attribute='__class__') }}",
    "{{ x|groupby('__class__') }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ cycler }}",
    "{{ joiner.__init__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{% set n = namespace(a=1) %}{{ n.a }}",
    "{{ lipsum.__globals__['os'] }}",
    "{{ lipsum() }}",
    "{{ dict.mro }}",
    "{{ range.__class__ }}",
    "{{ self }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ context }}",
    "{{ environment }}",
    "{{ config }}",
    "{{ request.application.__globals__ }}",
    "{{ url_for.__globals__ }}",
    "{{ get_flashed_messages.__globals__ }}",
    "{{ _budget }}",
    "{{ x._budget }}",
    "{{ caller }}",
    "{{ varargs }}",
    "{{ super }}",
    "{{ super() }}",
    "{% for a in xs %}{{ loop.__init__ }}{% endfor %}",
    "{% for a in xs %}{{ loop.__init__.__globals__ }}{% endfor %}",
    "{% for a in xs %}{{ loop._iterable }}{% endfor %}",
    "{% for a in xs %}{{ loop.cycle('a') }}{% endfor %}",
    "{% for a in xs %}{{ loop.changed(a) }}{% endfor %}",
    "{% for a in xs %}{{ loop.nextitem }}{% endfor %}",
    "{% for a in x.__class__.__mro__ %}{{ a }}{% endfor %}",
    "{% for a in xs recursive %}{{ loop(a) }}{% endfor %}",
    "{{ xs.append }}",
    "{{ xs.__len__ }}",
    "{{ x.items }}",
    "{{ x.keys }}",
    "{{ text.upper }}",
    "{{ text.format }}",
    "{{ text.encode.__self__ }}",
    "{{ number.real }}",
    "{{ number.__add__ }}",
    "{{ nothing.__class__ }}",
    "{{ gone.__class__ }}",
    "{{ gone._undefined_name }}",
    "{{ gone._fail_with_undefined_error }}",
    "{{ (x|first).__class__ }}",
    "{{ (gone|default(x)).__class__ }}",
    "{{ (x == x).__class__ }}",
    "{{ x|tojson|safe }}",
    "{% include x.path %}",
    "{% import '/etc/passwd' as p %}{{ p }}",
    "{% extends 'base' %}",
    "{% include '\x00../../etc/passwd' %}",
    "{%- macro m(a=x.__class__) -%}{{ a }}{%- endmacro -%}{{ m() }}",
    "{% call(a) m() %}{% endcall %}",
    "{% filter attr('__class__') %}{% endfilter %}",
    "{% if x.__class__ %}in{% endif %}",
    "{% autoescape false %}{{ x }}{% endautoescape %}",
    "{{ x.__getitem__('a') }}",
    "{{ x|xmlattr }}",
    "{{ x|pprint }}",
    "{{ text|urlize(target='x') }}",
    "{{ x|items }}",
    "{{ text|wordwrap(1, wrapstring=x.__class__) }}",
]


def test_no_known_escape_reaches_a_python_object(subtests: pytest.Subtests) -> None:
    values: dict[str, Json] = {
        "x": {"a": 1}, "xs": [{"a": 1}], "text": "t", "number": 1, "nothing": None,
    }  # fmt: skip
    for source in ESCAPES:
        with subtests.test(source=source):
            try:
                compile_template(source).render(values)
            except TemplateFaults as error:
                assert error.faults
            except (MissingValueError, RenderError) as error:
                assert "<" not in str(error)
            else:
                pytest.fail("it rendered")


def test_keys_of_data_that_look_like_python_are_only_keys() -> None:
    value: Json = {"__class__": "mine", "items": "also mine", "_x": 3}
    assert rendered("{{ v.__class__ }} {{ v.items }} {{ v._x }}", v=value) == "mine also mine 3"


# --- data is data ---------------------------------------------------------------------------------


MARKUP_VALUES = [
    "{{ 7 * 7 }}", "{% for x in y %}", "{# hidden #}", "{name}", "{{", "# system", "\n# user\n",
    "---", "\\# user", "<response>", "%s %(a)s", "{0.__class__}", "\x00\x1b[31m", "\r\n",
    "{% raw %}", "{% endraw %}", "{{ x }}", "", " ", "&lt;<>&\"'",
]  # fmt: skip


def test_a_value_is_never_parsed(subtests: pytest.Subtests) -> None:
    for value in MARKUP_VALUES:
        with subtests.test(value=value):
            assert rendered("a {{ x }} b", x=value) == f"a {value} b"
            assert rendered("a {x} b", syntax="braces", x=value) == f"a {value} b"
            assert rendered("{% for v in vs %}{{ v }}{% endfor %}", vs=[value, value]) == value * 2
            assert rendered("{{ gone|default(x) }}", x=value) == value


@settings(deadline=None)
@given(value=st.text())
def test_any_text_renders_verbatim(value: str) -> None:
    assert compile_template("a {{ x }} b").render({"x": value}) == "a " + value + " b"
    assert compile_template("a {x} b", syntax="braces").render({"x": value}) == f"a {value} b"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)  # fmt: skip


@settings(deadline=None)
@given(value=JSON)
def test_everything_but_text_renders_as_json(value: Any) -> None:
    shown = compile_template("{{ x }}").render({"x": value})
    assert shown == as_text(value)
    assert isinstance(value, str) or json.loads(shown) == value


SHOWN_VALUES: list[tuple[Json, str]] = [
    (True, "true"), (False, "false"), (None, "null"), (0, "0"), (-1.5, "-1.5"), (1e22, "1e+22"),
    ("true", "true"), (["ä", "日本", "😀"], '["ä", "日本", "😀"]'),
    ({"a": [1, {"b": None}], "c": "\n"}, '{"a": [1, {"b": null}], "c": "\\n"}'), ([], "[]"),
]  # fmt: skip


def test_values_show_as_a_person_would_write_them(subtests: pytest.Subtests) -> None:
    for value, shown in SHOWN_VALUES:
        with subtests.test(value=value):
            assert rendered("{{ x }}", x=value) == shown
            assert rendered("{x}", syntax="braces", x=value) == shown
            assert as_text(value) == shown


FILTERED = " ".join(
    f"{{{{ x|{name}{arguments} }}}}"
    for name, arguments in {
        "default": "(y, true)", "first": "", "join": "(s)", "last": "", "length": "", "lower": "",
        "replace": "(s, 'b')", "tojson": "(n)", "trim": "(s)", "truncate": "(n, y, s)", "upper": "",
    }.items()
)  # fmt: skip


@pytest.mark.nightly
@settings(deadline=None)
@given(x=JSON, y=JSON, s=JSON, n=JSON, name=st.sampled_from(sorted(FILTERS)))
def test_no_value_makes_a_filter_or_a_comparison_crash(
    x: Any, y: Any, s: Any, n: Any, name: str
) -> None:
    one = next(part for part in FILTERED.split("}} ") if f"|{name}" in part).removesuffix("}}")
    for source in (
        one + "}}",
        "{% if x < y %}{% endif %}{% if x in y %}{% endif %}{% if x == y != s %}{% endif %}",
        "{% for a in x %}{{ a[n] }}{{ a.b }}{% endfor %}",
    ):
        try:
            text = compile_template(source).render({"x": x, "y": y, "s": s, "n": n})
        except (MissingValueError, RenderError):
            continue
        text.encode()


KINDS: list[Json] = [None, True, 1, 1.5, "", [], {}]


def test_wrong_kinds_are_named_in_the_users_words() -> None:
    assert refusal("{{ x|length }}", x=5) == (
        "length takes a list, a text or an object, not a number"
    )
    assert refusal("{{ x|join }}", x="abc") == "join takes a list, not a text"
    assert refusal("{{ x|first }}", x={"a": 1}) == "first takes a list or a text, not an object"
    assert refusal("{% for a in x %}{% endfor %}", x="abc") == (
        "for iterates over a list, not over a text"
    )
    assert refusal("{% if x < 1 %}{% endif %}", x="a") == "a text cannot be compared with a number"
    assert refusal("{% if x in 1 %}{% endif %}", x="a") == "a text cannot be searched in a number"
    assert refusal("{{ 'a'|replace(x, '') }}", x=1) == "replace: old is a number, not a text"
    assert refusal("{{ 'a'|truncate(x) }}", x=None) == (
        "truncate: length is null, not a whole number"
    )
    assert [type_name(v) for v in KINDS] == [
        "null", "a boolean", "a number", "a number", "a text", "a list", "an object",
    ]  # fmt: skip


# --- missing values -------------------------------------------------------------------------------


MISSING_VALUES = [
    ("{{ gone }}", "gone"),
    ("{{ x }}{{ gone }}", "gone"),
    ("{{ gone.a.b }}", "gone"),
    ("{{ p.gone }}", "p.gone"),
    ("{{ p.gone.deeper }}", "p.gone"),
    ("{{ p.q.gone }}", "p.q.gone"),
    ("{{ p['gone'] }}", "p.gone"),
    ("{{ xs[5] }}", "xs[5]"),
    ("{{ xs[-5] }}", "xs[-5]"),
    ("{{ xs[i] }}", "xs[i]"),
    ("{{ xs[gone] }}", "gone"),
    ("{{ xs.name }}", "xs.name"),
    ("{{ p[0] }}", "p[0]"),
    ("{{ x.length }}", "x.length"),
    ("{% if gone %}{% endif %}", "gone"),
    ("{% if not gone %}{% endif %}", "gone"),
    ("{% if gone == 1 %}{% endif %}", "gone"),
    ("{% if 1 in gone %}{% endif %}", "gone"),
    ("{% for a in gone %}{% endfor %}", "gone"),
    ("{% for a in p.gone %}{% endfor %}", "p.gone"),
    ("{% for a in rows %}{{ a.b }}{% endfor %}", "a.b"),
    ("{{ empty|first }}", "a first item"),
    ("{{ empty|last }}", "a last item"),
    ("{{ gone|upper }}", "gone"),
    ("{{ gone|length }}", "gone"),
    ("{{ gone|tojson }}", "gone"),
    ("{{ gone|join }}", "gone"),
    ("{{ x|replace(gone, '') }}", "gone"),
    ("{{ rows|join(attribute='b') }}", "item.b"),
    ("{{ (rows|first).b }}", "rows|first.b"),
    ("{{ x|default(1, gone) }}", "gone"),
    ("{{ more|default(gone) }}", "gone"),
]


def test_a_missing_value_is_named_as_it_is_written(subtests: pytest.Subtests) -> None:
    values: dict[str, Json] = {
        "x": "v", "p": {"q": {}}, "xs": [1], "i": 3, "rows": [{"a": 1}], "empty": [],
    }  # fmt: skip
    for source, name in MISSING_VALUES:
        with subtests.test(source=source):
            assert missing(source, **values) == name


def test_the_error_of_a_missing_value_reads_well() -> None:
    with pytest.raises(MissingValueError, match=r"^p\.gone is missing$"):
        rendered("{{ p.gone }}", p={})


def test_a_present_null_is_not_missing() -> None:
    assert rendered("{{ x }}{{ x|default('d') }}{{ p.x }}", x=None, p={"x": None}) == "nullnullnull"
    assert rendered("{{ x|default('d', true) }}", x=None) == "d"


def test_what_a_branch_not_taken_lacks_does_not_matter() -> None:
    assert rendered("{% if x %}{{ gone }}{% else %}ok{% endif %}", x=False) == "ok"


# --- variables ------------------------------------------------------------------------------------


def test_variables_come_from_the_syntax_tree_with_their_places() -> None:
    source = (
        "name: {{ name }} and {{ user.name }}\n"
        "{% for item in items|default(other) %}{{ item.name }} {{ loop.index }}{% endfor %}\n"
        "{{ a[b] }} {% if c and not d %}{{ item }}{% endif %} {# {{ hidden }} #}"
        "{% raw %}{{ raw }}{% endraw %} {{ nickname|default('') }}{{ name|default('') }}"
    )
    assert compile_template(source).uses == {
        "name": Use(0, 9, False),
        "user": Use(0, 24, False),
        "items": Use(1, 15, True),
        "other": Use(1, 29, False),
        "a": Use(2, 3, False),
        "b": Use(2, 5, False),
        "c": Use(2, 17, False),
        "d": Use(2, 27, False),
        "item": Use(2, 34, False),
        "nickname": Use(2, source.split("\n")[2].index("nickname"), True),
    }


def test_a_variable_with_a_default_in_one_place_only_is_needed() -> None:
    for source in ("{{ x|default('') }} {{ x }}", "{{ x }} {{ x|default('') }}"):
        assert compile_template(source).uses["x"].optional is False
    assert compile_template("{{ x|default('') }} {{ x|default(1) }}").uses["x"].optional


def test_a_template_of_one_variable_yields_its_value() -> None:
    assert compile_template("{{ words }}").value({"words": ["a", "b"]}) == ["a", "b"]
    assert compile_template("{{ words }} ").value({"words": ["a"]}) == '["a"] '
    assert compile_template("{{ words|upper }}").value({"words": "a"}) == "A"
    with pytest.raises(MissingValueError, match="words is missing"):
        compile_template("{{ words }}").value({})


def test_a_constant_is_known_as_one() -> None:
    assert compile_template("no { braces } here").is_constant
    assert compile_template("{name}").is_constant
    assert not compile_template("{{ x }}").is_constant
    assert compile_template("{n}", syntax="braces").uses == {"n": Use(0, 1, False)}


def test_plain_templates_need_only_their_variables() -> None:
    assert compile_template("a {{ x }} {% if y and not z %}{{ 1 }}{% endif %}").plain
    for source in ("{{ x.y }}", "{{ x[0] }}", "{{ x|upper }}", "{% if x < 1 %}{% endif %}",
                   "{% for a in x %}{% endfor %}"):  # fmt: skip
        assert not compile_template(source).plain


# --- braces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Hi {name}!", "Hi Ada!"),
        ("{name}{name}", "AdaAda"),
        ('{"a": {name}, "b": {}}', '{"a": Ada, "b": {}}'),
        ("{ name } {name.first} {0} {} {na-me} {name!r} {name:>5}",) * 2,
        ("{{ name }} {% if name %} {# c #}",) * 2,
        ("{{name}}", "{Ada}"),
        ("{\n  name\n}",) * 2,
        ("{n} {yes} {xs}", '3 true ["a"]'),
        ("", ""),
    ],
)
def test_braces_know_only_a_name_between_them(source: str, expected: str) -> None:
    assert rendered(source, syntax="braces", name="Ada", n=3, yes=True, xs=["a"]) == expected


def test_braces_name_what_is_missing_and_where_it_is_used() -> None:
    template = compile_template("a {x}\n  {long_name} {x}", syntax="braces")
    assert template.uses == {"x": Use(0, 3, False), "long_name": Use(1, 3, False)}
    with pytest.raises(MissingValueError, match="long_name is missing"):
        template.render({"x": 1})


# --- bounds ---------------------------------------------------------------------------------------


def test_exactly_ten_thousand_iterations_are_fine_and_one_more_is_not() -> None:
    template = compile_template("{% for x in xs %}.{% endfor %}")
    assert template.render({"xs": [0] * 10_000}) == "." * 10_000
    with pytest.raises(RenderError, match="more than 10,000 loop iterations"):
        template.render({"xs": [0] * 10_001})


def test_iterations_of_all_loops_count_together() -> None:
    nested = compile_template("{% for x in xs %}{% for y in xs %}{% endfor %}{% endfor %}")
    assert nested.render({"xs": [0] * 99}) == ""  # 99 + 99 * 99 = 9,900
    with pytest.raises(RenderError, match="loop iterations"):
        nested.render({"xs": [0] * 100})
    assert nested.render({"xs": [0] * 99}) == "", "a failed rendering does not spoil the next one"


def test_exactly_a_million_characters_are_fine_and_one_more_is_not() -> None:
    for syntax, source in (("jinja", "{{ x }}!"), ("braces", "{x}!")):
        template = compile_template(source, syntax=syntax)  # type: ignore[arg-type]  # literals
        assert len(template.render({"x": "a" * (MAX_OUTPUT - 1)})) == 1_000_000
        with pytest.raises(RenderError, match=r"longer than 1,000,000 characters"):
            template.render({"x": "a" * MAX_OUTPUT})


def in_loop(body: str) -> str:
    return "{% for i in xs %}" + body + "{% endfor %}"


BOMBS: dict[str, tuple[str, str]] = {
    "repeated variable": ("{{ x }}" * 2_000, "dict(x=a)"),
    "braces": ("{x}" * 6_000, "dict(x=a)"),
    "loop over a long text": (in_loop("{{ x }}"), "dict(x=a, xs=xs)"),
    "replace": ("{{ x|replace('a', x) }}", "dict(x=a)"),
    "replace all by -1": ("{{ x|replace('a', x, -1) }}", "dict(x=a)"),
    "replace nothing": ("{{ x|replace('', x) }}", "dict(x=a)"),
    "replace chain": ("{{ x" + "|replace('a', 'aa')" * 60 + " }}", "dict(x=a[:1_000])"),
    "join": ("{{ xs|join(x) }}", "dict(x=a, xs=['b'] * 90_000)"),
    "join of long texts": ("{{ xs|join }}", "dict(xs=[a] * 9_000)"),
    "indented json": ("{{ x|tojson(8) }}", "dict(x=nested(45, 60_000))"),
    "indented json in a loop": (
        in_loop("{% if x|tojson(8) == '' %}{% endif %}"),
        "dict(x=nested(45, 2_000), xs=xs)",
    ),
    "lower in a loop": (in_loop("{% if x|lower == '' %}{% endif %}"), "dict(x=a, xs=xs)"),
    "upper that grows": ("{{ x|upper|lower|upper }}", "dict(x='\u0390' * 900_000)"),
    "truncate in a loop": (
        in_loop("{% if x|truncate(9) == '' %}{% endif %}"),
        "dict(x='a ' * 400_000, xs=xs)",
    ),
    "truncate with a long end": (
        "{{ x|truncate(890000, true, y) }}" * 3,
        "dict(x=a, y=a[:880_000])",
    ),
    "trim of many characters": ("{{ x|trim(y) }}", "dict(x=a, y='bcdefghij' * 90_000 + 'a')"),
    "comparisons in a loop": (
        in_loop("{% if x == y %}{% endif %}" * 300),
        "dict(x=a + 'b', y=a + 'c', xs=xs)",
    ),
    "searches in a loop": (in_loop("{% if 'ab' in x %}{% endif %}" * 300), "dict(x=a, xs=xs)"),
    "searches in a list": (
        in_loop("{% if 'ab' in x %}{% endif %}" * 300),
        "dict(x=['a'] * 90_000, xs=xs)",
    ),
    "a long loop body": (in_loop("{{ x }}" * 2_000), "dict(x='', xs=xs)"),
    "serialising in a loop": (
        in_loop("{% if x|tojson == '' %}{% endif %}"),
        "dict(x=[[]] * 300_000, xs=xs)",
    ),
}
RENDER_THEM = """
import json, resource, sys, time
from edison_ci.templating.templates import *

def nested(depth, width):
    value = [0] * width
    for _ in range(depth):
        value = [value]
    return value

a, xs, outcomes = "a" * 900_000, [0] * 9_999, {}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name, (source, values) in json.load(sys.stdin).items():
    data = eval(values)
    template = compile_template(source, syntax="braces" if name == "braces" else "jinja")
    started = time.process_time()
    try:
        outcome = str(len(template.render(data)))
    except RenderError as error:
        outcome = str(error)
    outcomes[name] = [round(time.process_time() - started, 3), outcome]
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
print(json.dumps([grown, outcomes]))
"""


@pytest.mark.nightly
def test_no_bomb_takes_long_or_much_memory() -> None:
    """All of them in one process, so that its high-water mark covers each."""
    done = subprocess.run(
        [sys.executable, "-c", RENDER_THEM],
        input=json.dumps(BOMBS),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE_S,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)),
    )
    grown_mb, outcomes = json.loads(done.stdout)
    assert outcomes.keys() == BOMBS.keys()
    assert max(seconds for seconds, _ in outcomes.values()) < 3 * slowness(), outcomes
    assert grown_mb < 120, outcomes
    limited = {name for name, (_, outcome) in outcomes.items() if not outcome.isdigit()}
    assert limited == BOMBS.keys(), outcomes


# --- any source whatsoever ------------------------------------------------------------------------

EXAMPLES = 1_500 if "FAULTS" in os.environ else 300
FRAGMENTS = st.sampled_from(
    [
        "{{", "}}", "{%", "%}", "{#", "#}", "{{-", "-}}", "{%-", "-%}", "{%+", " ", "\n", "\r\n",
        "\r", "x", "xs", "loop", "loop.index", "self", "_y", ".", ".a", "[0]", "[x]", "[", "]",
        "(", ")", "|", "|upper", "|join(',')", "|default('')", "|replace('a', 'b')", "|safe", ",",
        "'", '"', "'a'", "1", "-1", "1e999", "1_000", "0x1f", "+", "-", "*", "~", "==", "<", "in",
        "not", "and", "or", "is defined", "if x", "elif x", "else", "endif", "for x in xs",
        "for a, b in xs", "for x in xs if x", "endfor", "set a = 1", "macro m()", "endmacro",
        "include 'a'", "raw", "endraw", "block b", "endblock", "with", "call m()", "filter upper",
        "import 'a' as b", "extends 'a'", "true", "none", "\\", "\\ud800", "é", "\x00", "\u2028",
        "{% if x %}", "{% endif %}", "{% for x in xs %}", "{% endfor %}", "{{ x }}", "{{ x.y }}",
    ]
)  # fmt: skip
SOURCES = st.text(max_size=200) | st.lists(FRAGMENTS, max_size=30).map("".join) | st.lists(
    st.lists(FRAGMENTS, max_size=6).map(lambda parts: "{{ " + " ".join(parts) + " }}")
    | st.lists(FRAGMENTS, max_size=6).map(lambda parts: "{% " + " ".join(parts) + " %}")
    | st.text(string.ascii_letters + "\n", max_size=5),
    max_size=6,
).map("".join)  # fmt: skip


@pytest.mark.nightly
@settings(max_examples=EXAMPLES)
@given(source=SOURCES)
def test_any_source_compiles_or_is_refused_with_places_inside_it(source: str) -> None:
    started = time.process_time()
    try:
        template = compile_template(source)
    except TemplateFaults as error:
        lines = source.split("\n")
        assert error.faults
        for fault in error.faults:
            line, column = fault.at
            assert 0 <= line < len(lines)
            assert 0 <= column <= len(lines[line])
            assert fault.message
    else:
        for name, use in template.uses.items():
            assert source.split("\n")[use.line][use.column :].startswith(name)
        with contextlib.suppress(MissingValueError, RenderError):
            template.render({"x": {"y": "v", "a": 1}, "xs": ["p", "q"]}).encode()
    assert time.process_time() - started < 1


@settings(deadline=None)
@given(source=SOURCES)
def test_any_source_in_braces_renders_to_itself_without_names(source: str) -> None:
    template = compile_template(source, syntax="braces")
    shown = template.render({name: f"{{{name}}}" for name in template.uses})
    assert shown == source


# --- templates that need no engine ----------------------------------------------------------------

BITS = (
    "{{ x }}", "{{x}}", "{{ long_name2 }}", "{{  x  }}", "{{ none }}", "{{ true }}", "{{ loop }}",
    "{{ self }}", "{{ not }}", "{{ in }}", "{{ x.y }}", "{{ _x }}", "{{- x -}}", "{{\n x }}",
    "{{ x", "{", "}", "}}", "{{", "{%", "%}", "{#", "#}", "{# x #}", "\n", "\r\n", "\r", " ",
    "text", "\u2028", "{% if x %}", "{% endif %}", "{{ 2x }}", "{{ é }}", "-",
)  # fmt: skip


@given(st.lists(st.sampled_from(BITS), max_size=8).map("".join))
@settings(max_examples=EXAMPLES)
def test_text_with_variables_means_the_same_without_the_engine(source: str) -> None:
    alone = analyse_variables(source)
    if alone is not None and alone.uses:
        whole = analyse_template(source)
        values: dict[str, Json] = {name: f"<{name}>" for name in alone.uses}
        values |= {"long_name2": [2]}
        assert list(alone.uses.items()) == list(whole.uses.items())
        assert alone.renders.render(values) == whole.renders.render(values)
        assert (alone.single, alone.plain) == (whole.single, whole.plain)


def test_text_with_variables_is_read_without_the_engine() -> None:
    text = "{{ name }}, you said: {{ said }} {{ name }}"
    asked = f"""
import sys
from edison_ci.templating.templates import compile_template
print(compile_template({text!r}).render({{"name": "Ann", "said": [1]}}))
print("jinja2" in sys.modules, compile_template("{{{{ x|upper }}}}").render({{"x": "a"}}))
"""
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "Ann, you said: [1] Ann\nFalse A\n", done.stderr
