"""The `hyperopt` section of a config, read with its lines; every value that could be tried is
resolved beforehand."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args

from distcore.config import RunConfig, load_config, resolve
from distcore.config.mistakes import validated
from distcore.search.folders import SECTION
from distcore.search.older import upgrade_section
from distcore.search.substitute import WHOLE, Values, substitute, target
from distcore_core.config.document import Document, KeyPath, SourceMap
from distcore_core.config.issues import Problem, dotted, nearest, unknown_option
from distcore_core.contracts import JSON
from distcore_core.contracts.values import COMBINED
from distcore_core.errors import ConfigError, ConfigIssue
from distcore_search.options import Hyperopt
from distcore_search.space import SPACES, Space

if TYPE_CHECKING:
    from distcore_core.registry.manager import Plugins


MOST_COMBINATIONS = 256
"""So many combinations of extremes are all resolved; of more, those that differ from the first
in one parameter."""


@dataclass(frozen=True)
class Section:
    """A config and what is searched in it.

    values: the config without the section, written: the section; both in today's spellings, no
        default filled in.
    notes: older spellings of the section that were understood, for people.
    """

    values: Values
    written: JSON
    options: Hyperopt
    spaces: Mapping[str, Space]
    source: str = "config"
    source_map: SourceMap = field(default_factory=SourceMap, repr=False)
    notes: tuple[str, ...] = ()

    def issue(self, path: KeyPath, message: str) -> ConfigIssue:
        return self.source_map.issue((SECTION, *path), message)

    def refuse(self, path: KeyPath, message: str) -> ConfigError:
        return ConfigError([self.issue(path, message)], self.source)

    def config(self, parameters: Mapping[str, Any]) -> Values:
        """The config of a trial."""
        return substitute(self.values, parameters)

    def in_order_of(self, names: Iterable[str]) -> Section:
        """The section with its parameters in the order of these names, by which a grid goes; others
        come last."""
        spaces = self.spaces
        order = dict.fromkeys([*(name for name in names if name in spaces), *spaces])
        written = self.written["parameters"]
        return replace(
            self,
            written={**self.written, "parameters": {name: written[name] for name in order}},
            spaces={name: spaces[name] for name in order},
        )

    def first(self) -> dict[str, Any]:
        """The parameters of one possible trial: the first extreme of each."""
        return {name: space.extremes()[0][1] for name, space in self.spaces.items()}


def read_section(document: Document) -> Section:
    """The section of a config, every mistake of its structure told at once, with those of the rest
    of the config. Raises ConfigError.

    The document is brought to today's spellings in place."""
    source, source_map = document.source, document.source_map
    issues: list[ConfigIssue] = []
    try:
        load_config(document)
    except ConfigError as error:
        issues += error.issues
    if not document.values.get(SECTION):
        message = (
            "is missing, so there is nothing to search; see docs/hyperopt.md, or run `distcore "
            "train`"
        )
        raise ConfigError([*issues, ConfigIssue(0, SECTION, message)], source)
    if not isinstance(document.values[SECTION], Mapping):  # which was told
        raise ConfigError(issues, source)
    notes = tuple(upgrade_section(document))
    values = copy.deepcopy(document.values)
    written = values.pop(SECTION)
    if written.get("output_feature") is not None:  # a name: a text, as it is written
        path = (SECTION, "output_feature")
        written["output_feature"] = document.raw.get(path, written["output_feature"])
    found = [] if issues else [*_targets(values, written), *_output_feature(values, written)]
    options, problems = validated(Hyperopt, written)
    found += _in_words_of_spaces(problems, written)
    issues += [source_map.issue((SECTION, *path), message) for path, message in found]
    if issues or options is None:
        raise ConfigError(issues, source)
    return Section(values, written, options, options.parameters, source, source_map, notes)


def _in_words_of_spaces(
    problems: Iterable[Problem], written: JSON
) -> Iterator[tuple[KeyPath, str]]:
    """What is wrong with the section. An unknown option of a space is told with the nearest word
    of that space."""
    known = {name: fields for model in SPACES for name, fields in _fields(model)}
    for path, message in problems:
        if message.startswith("unknown option") and path[0] == "parameters" and len(path) == 3:
            space = str(written["parameters"][path[1]].get("space")).lower()
            yield path, unknown_option(str(path[2]), known.get(space, ()))
        else:
            yield path, message


def _fields(model: type[Space]) -> Iterator[tuple[str, list[str]]]:
    for name in get_args(model.model_fields["space"].annotation):
        yield name, list(model.model_fields)


def _targets(values: Values, written: JSON) -> Iterator[tuple[KeyPath, str]]:
    """Parameters that name nothing of the config, or a part of a list."""
    parameters = written.get("parameters")
    for name in parameters if isinstance(parameters, Mapping) else ():
        try:
            substitute(values, {name: {}})
        except ValueError as error:
            yield ("parameters", name), str(error)


def _output_feature(values: Values, written: JSON) -> Iterator[tuple[KeyPath, str]]:
    names = (*(each["name"] for each in values["output_features"]), COMBINED)
    chosen = written.get("output_feature", COMBINED)
    if isinstance(chosen, str) and chosen not in names:
        yield ("output_feature",), f"{chosen!r} is no output feature; {nearest(chosen, names)}"


# ------------------------------------------------------------------ every candidate resolves


@dataclass(frozen=True)
class Candidate:
    """A config that a search could try. parameter, where: which one is not the first, and what
    of it says so."""

    parameters: dict[str, Any]
    parameter: str = ""
    where: KeyPath = ()


def check_candidates(
    section: Section, plugins: Plugins, backend: str, defaults: Mapping[str, str]
) -> list[RunConfig]:
    """The resolved configs of the search's extremes, the first one first. defaults: the backend's,
    as for `resolve`.

    Raises ConfigError if one does not resolve, with the line of the bound or the category, and if a
    parameter changes nothing."""
    resolved: list[RunConfig] = []
    issues: dict[ConfigIssue, None] = {}
    seen: set[ConfigIssue] = set()
    for candidate in candidates(section):
        found = _resolved(section, candidate, plugins, backend, defaults)
        if isinstance(found, RunConfig):
            resolved.append(found)
            continue
        for each in found:
            if each not in seen:
                seen.add(each)
                issues[_placed(section, candidate, each)] = None
    if not issues:
        issues = dict.fromkeys(_without_effect(section, plugins, backend, defaults))
    if issues:
        raise ConfigError(list(issues), section.source)
    return resolved


def candidates(section: Section) -> Iterator[Candidate]:
    """The first of all extremes, then those that differ from it in one parameter (and values
    between two bounds), then (of a few) all combinations."""
    first = section.first()
    yield Candidate(first)
    extremes = {name: space.extremes() for name, space in section.spaces.items()}
    for name, found in extremes.items():
        for where, value in [*found[1:], *section.spaces[name].between()]:
            yield Candidate({**first, name: value}, name, where)
    if math.prod(map(len, extremes.values())) <= MOST_COMBINATIONS:
        for combination in itertools.product(*extremes.values()):
            yield Candidate(dict(zip(extremes, (value for _, value in combination), strict=True)))


def _resolved(
    section: Section,
    candidate: Candidate,
    plugins: Plugins,
    backend: str,
    defaults: Mapping[str, str],
) -> RunConfig | list[ConfigIssue]:
    try:
        values = section.config(candidate.parameters)
        found = resolve(load_config(values, plugins=plugins), plugins, defaults, backend)
    except ConfigError as error:
        return [ConfigIssue(0, each.path, each.message) for each in error.issues]
    except ValueError as error:
        return [ConfigIssue(0, "", str(error))]
    aimed, names = section.options.output_feature, [each.name for each in found.output_features]
    if aimed not in (*names, COMBINED):
        message = f"the metric is of {aimed!r}, which is no output feature then; search its column"
        return [ConfigIssue(0, "", message)]
    return found


def _placed(section: Section, candidate: Candidate, found: ConfigIssue) -> ConfigIssue:
    """The mistake of a candidate's config, at the place in the section that makes it."""
    name, where = candidate.parameter, candidate.where
    guilty = [each for each in section.spaces if found.path and _covers(section, each, found.path)]
    said = f"{found.path}: {found.message}" if found.path else found.message
    if guilty and name not in guilty:
        beside = f"where {name} is {candidate.parameters[name]!r}, " if name else ""
        name, where, said = guilty[0], (), f"{beside}{said}"
    value = candidate.parameters.get(name)
    if not name:
        return section.issue(("parameters",), f"together these do not resolve: {said}")
    if not where:
        where = section.spaces[name].extremes()[0][0] if value == section.first()[name] else ()
    return section.issue(("parameters", name, *where), f"{value!r} cannot be tried: {said}")


def _covers(section: Section, name: str, path: str) -> bool:
    """Whether the config's path lies in what the parameter sets."""
    mine = dotted(*target(section.values, name))
    return name == WHOLE or path == mine or path.startswith((f"{mine}.", f"{mine}["))


def _without_effect(
    section: Section, plugins: Plugins, backend: str, defaults: Mapping[str, str]
) -> Iterator[ConfigIssue]:
    """Parameters all of whose values make the same config: no feature has the type, or its own
    option wins."""
    first = section.first()
    for name, space in section.spaces.items():
        distinct = [value for _, value in space.extremes() if value != first[name]]
        if not distinct:
            continue
        configs = (
            resolve(
                load_config(section.config({**first, name: value}), plugins=plugins),
                plugins,
                defaults,
                backend,
            ).as_json()
            for value in (first[name], *reversed(distinct))
        )
        plain = next(configs)
        if all(each == plain for each in configs):
            message = (
                "changes nothing: no feature uses it, or each gives its own. Remove it, or name "
                "the feature"
            )
            yield section.issue(("parameters", name), message)
