"""The matching rules of a cassette: seen one by one, and removed."""

import tomllib
from typing import cast

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.cassettes import check_exists
from tapeway.admin.handlers.inspection.comparison import rules_in_force
from tapeway.admin.handlers.journal import given_rules
from tapeway.admin.models.inspection import CassetteRule, CassetteRules, RuleQuery
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall, PlainCall
from tapeway.core.matching.rules import removing, single_rules
from tapeway.core.misses.suggestion import rules_text
from tapeway.errors import AdminError


async def get_rules(context: HandlerContext, call: PlainCall) -> CassetteRules:
    """The rules in force for a cassette, one by one."""
    await check_exists(context, call.cassette)
    return await _in_force(context, call.cassette)


async def _in_force(context: HandlerContext, name: str) -> CassetteRules:
    of_settings = {rules_text(rule) for rule in single_rules(context.broker.rules)}
    texts = [rules_text(rule) for rule in single_rules(await rules_in_force(context, name)) if rule]
    return CassetteRules(
        rules=[CassetteRule(rule=text, of_settings=text in of_settings) for text in texts]
    )


async def delete_rule(
    context: HandlerContext, call: OperationCall[RuleQuery, Nothing]
) -> CassetteRules:
    """Remove a rule from a cassette, at once and for all requests to it."""
    await check_exists(context, call.cassette)
    try:
        document = tomllib.loads(call.query.rule)
    except tomllib.TOMLDecodeError as exc:
        raise AdminError(f"'rule' is no line of TOML: {exc}", code="bad_rule") from None
    gone = given_rules(cast("dict[str, object]", document))
    await context.broker.change_rules(call.cassette, removing(gone))
    return await _in_force(context, call.cassette)
