"""`distcore completion bash|zsh|fish`: a script made from the parsers, so that a press of TAB
starts no Python.

Options are offered as the docs spell them; files are offered wherever an option takes one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple


class Option(NamedTuple):
    """An option of a command. takes_value: whether a word follows it."""

    spelling: str
    help: str
    takes_value: bool


class Described(NamedTuple):
    """A command: what it does, its options, and the words that may follow it (choices, actions
    of its own)."""

    name: str
    help: str
    options: list[Option]
    words: list[str]


def completion(arguments: argparse.Namespace) -> int:
    """Print the script of the shell."""
    print({"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell](list(described())))
    return 0


def described() -> Iterator[Described]:
    """Every command, those of plugins too."""
    from distcore.cli.commands import ALIASES, COMMANDS, offered_commands
    from distcore.cli.main import Parser, build_parser

    found = dict(COMMANDS)
    found |= {each.name: each.command for each in offered_commands()}
    for name, command in sorted(found.items()):
        inner = Parser(prog=f"distcore {name}", allow_abbrev=False)
        inner.add_argument("--debug", action="store_true", help="show tracebacks")
        command.add_arguments(inner)
        for called in (name, *ALIASES.get(name, [])):
            yield Described(called, command.help, list(_options(inner)), _words(inner))
    yield Described("", "", list(_options(build_parser())), [])


def _options(parser: argparse.ArgumentParser) -> Iterator[Option]:
    for action in parser._actions:
        if action.option_strings and action.help != argparse.SUPPRESS:
            long = next(
                (each for each in action.option_strings if each.startswith("--")),
                action.option_strings[0],
            )
            yield Option(long, _plain(action.help or ""), action.nargs != 0)


def _words(parser: argparse.ArgumentParser) -> list[str]:
    choices = [
        action.choices for action in parser._actions if not action.option_strings and action.choices
    ]
    return [str(word) for each in choices for word in each]


def _plain(text: str) -> str:
    """Without what a shell would read."""
    return " ".join("".join(each for each in text if each not in "'\"`$\\[]:").split())


def bash(commands: list[Described]) -> str:
    """For bash: a function that looks at the command and at the word before."""
    names = " ".join(each.name for each in commands if each.name)
    cases = "\n".join(
        f"    {each.name or '-*'}) "
        f'words="{" ".join([*each.words, *(one.spelling for one in each.options)])}" ;;'
        for each in commands
    )
    return f"""# distcore: completion for bash
_distcore() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" words=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ] && [ "${{word#-}}" = "$word" ]; then
    COMPREPLY=($(compgen -W "{names}" -- "$word"))
    return
  fi
  case "$command" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [ "${{word#-}}" = "$word" ]; then COMPREPLY+=($(compgen -f -- "$word")); fi
}}
complete -o filenames -F _distcore distcore"""


def zsh(commands: list[Described]) -> str:
    """For zsh: a function of the completion system."""
    names = "\n".join(f"    '{each.name}:{_plain(each.help)}'" for each in commands if each.name)
    cases = []
    for each in commands:
        if each.name:
            options = [
                f"'{one.spelling}[{one.help}]{':value:_files' if one.takes_value else ''}'"
                for one in each.options
            ]
            rest = f"'*:word:({' '.join(each.words)})'" if each.words else "'*:file:_files'"
            cases.append(f"    {each.name}) _arguments {' '.join([*options, rest])} ;;")
    return "\n".join(
        [
            "#compdef distcore",
            "_distcore() {",
            "  local -a commands",
            "  commands=(",
            names,
            "  )",
            "  if (( CURRENT == 2 )); then _describe command commands; return; fi",
            '  local command="${words[2]}"',
            "  shift words; (( CURRENT-- ))",
            '  case "$command" in',
            *cases,
            "  esac",
            "}",
            'if [ "$funcstack[1]" = _distcore ]; then _distcore "$@"; else compdef _distcore '
            "distcore; fi",
        ]
    )


def fish(commands: list[Described]) -> str:
    """For fish: a line an option."""
    lines = ["# distcore: completion for fish"]
    for each in commands:
        if not each.name:
            continue
        first, after = "__fish_use_subcommand", f"__fish_seen_subcommand_from {each.name}"
        lines.append(f"complete -c distcore -n {first} -f -a {each.name} -d '{_plain(each.help)}'")
        lines += [f"complete -c distcore -n '{after}' -f -a '{word}'" for word in each.words]
        for one in each.options:
            value = " -r" if one.takes_value else ""
            lines.append(
                f"complete -c distcore -n '{after}' -l {one.spelling[2:]}{value} -d '{one.help}'"
            )
    return "\n".join(lines)
