"""The tools of the team. A name without dots in the YAML files is looked up here."""

from polyport import CallbackContext, Tool

ORDERS = {17: "on its way to Oslo", 18: "delivered on Monday"}


def find_order(number: int) -> dict:
    """Find an order: where it is.

    Args:
        number: the number of the order
    """
    return {"order": number, "status": ORDERS.get(number, "unknown")}


def refund(amount: int, number: int) -> str:
    """Refund an amount for an order.

    Args:
        amount: how much, in euros
        number: the number of the order
    """
    return f"refunded {amount} for order {number}"


def is_large(amount: int) -> bool:
    """Whether a human must approve a refund."""
    return amount > 100


def note_order(ctx: CallbackContext, tool: Tool, args: dict) -> None:
    """Remember in the session which order the talk is about."""
    if "number" in args:
        ctx.state["order"] = args["number"]
