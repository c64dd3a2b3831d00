"""Wishes to cancel: what is still there may be cancelled, what has left may not."""

from ..case import (
    OTHER_CUSTOMER,
    Case,
    act,
    asked,
    goods,
    looked_up,
    mentions,
    only_ground,
    refused,
    respond,
    state,
    who,
)
from ..shop import Shop


def cancel_processing(shop: Shop) -> Case:
    """Cancel an order that may be cancelled."""
    customer = shop.customer()
    order = shop.order(customer, "processing", items=2)
    return Case(
        says=f"Hello, {who(shop, customer)} Please cancel my order {order}, I ordered the wrong things.",
        wish=f"You want your order {order} cancelled.",
        actions=[
            act("look_up_order", order_id=order),
            act("look_up_customer", customer=shop.customers[customer]["email"]),
            act("cancel_order", order_id=order),
            respond(f"Your order {order} is cancelled."),
        ],
        lines=[
            state("orders", order, "status", equals="cancelled"),
            mentions(["cancelled", "canceled"]),
            looked_up(order),
        ],
        facts=asked(shop, customer, order),
    )


def cancel_by_goods(shop: Shop) -> Case:
    """The customer knows neither number nor date: the order is found by what is in it."""
    customer = shop.customer()
    shop.order(customer, "delivered")
    order = shop.order(customer, "processing")
    shop.order(customer, "processing")
    name, email = goods(shop, order), shop.customers[customer]["email"]
    return Case(
        says=f"Hi! I would like to cancel the order with the {name}. I do not have the number at hand.",
        wish=f"You want the order with the {name} cancelled; you do not know its number.",
        actions=[
            respond("Which e-mail did you order with?"),
            act("look_up_customer", customer=email),
            *(act("look_up_order", order_id=each) for each in shop.customers[customer]["orders"]),
            act("cancel_order", order_id=order),
            respond(f"Your order {order} with the {name} is cancelled."),
        ],
        lines=[
            state("orders", order, "status", equals="cancelled"),
            mentions(["cancelled", "canceled"]),
            looked_up(order),
        ],
        facts=[
            *(fact for fact in asked(shop, customer, order) if "order number" not in fact[0]),
            (("order number", "order id", "which order"), f"I do not have it. It is the one with the {name}."),
        ],
    )


def cancel_shipped(shop: Shop) -> Case:
    """An order that has left cannot be cancelled."""
    customer = shop.customer()
    order = shop.order(customer, "shipped")
    expected = shop.shipments[order]["expected"]
    return Case(
        says=f"{who(shop, customer)} Cancel order {order} please.",
        wish=f"You want your order {order} cancelled and are annoyed if it is not.",
        actions=[
            act("look_up_order", order_id=order),
            act("look_up_shipment", order_id=order),
            respond(f"I cannot cancel order {order}: it has shipped already, and is expected on {expected}."),
            respond("I am sorry: a shipped order cannot be cancelled."),
        ],
        lines=[
            *refused(["shipped", "in transit", "on its way"]),
            only_ground("final sale", *OTHER_CUSTOMER),
            looked_up(order, required=True),
        ],
        facts=asked(shop, customer, order),
        insists=["But I do not want it any more. Just cancel it!"],
    )


def cancel_what_can_be(shop: Shop) -> Case:
    """All open orders are to be cancelled; one of them has left."""
    customer = shop.customer()
    first, gone, second = (shop.order(customer, status) for status in ("processing", "shipped", "processing"))
    email = shop.customers[customer]["email"]
    return Case(
        says=f"{who(shop, customer)} I am moving abroad. Please cancel all my orders that have not arrived.",
        wish="You want all your orders cancelled that have not arrived, where that is possible.",
        actions=[
            act("look_up_customer", customer=email),
            *(act("look_up_order", order_id=each) for each in (first, gone, second)),
            act("cancel_order", order_id=first),
            act("cancel_order", order_id=second),
            respond(f"I cancelled {first} and {second}. Order {gone} cannot be cancelled: it has shipped."),
        ],
        lines=[
            state("orders", first, "status", equals="cancelled"),
            state("orders", second, "status", equals="cancelled"),
            mentions(gone, ["shipped", "in transit", "on its way"]),
        ],
        facts=asked(shop, customer, first),
    )


def cancel_one_of_two(shop: Shop) -> Case:
    """Two orders of one kind of goods; only one of them can be cancelled."""
    customer = shop.customer()
    gone, order = shop.order(customer, "shipped"), shop.order(customer, "processing")
    name = goods(shop, order)
    shop.orders[gone]["items"]["I1"]["name"] = name
    email = shop.customers[customer]["email"]
    return Case(
        says=f"{who(shop, customer)} I ordered the {name} twice by mistake. Please cancel one of the two.",
        wish=f"You ordered the {name} twice and want one of the two orders cancelled, whichever.",
        actions=[
            act("look_up_customer", customer=email),
            act("look_up_order", order_id=gone),
            act("look_up_order", order_id=order),
            act("cancel_order", order_id=order),
            respond(f"I cancelled order {order}; order {gone} has shipped and comes to you."),
        ],
        lines=[state("orders", order, "status", equals="cancelled"), mentions(order), looked_up(order)],
        facts=[*asked(shop, customer, order)[:1], (("which", "either"), "I do not mind which of the two.")],
    )
