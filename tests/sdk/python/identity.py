"""Deliver in the name of an identity: as the SDK writes it, reads it and changes it."""

from azure.core.exceptions import HttpResponseError
from azure.mgmt.eventgrid import models

from support import GROUP, PLAIN, Webhook, management, raises


def identified(webhook, kind="SystemAssigned"):
    identity = models.EventSubscriptionIdentity(type=kind, user_assigned_identity="/i" if kind == "UserAssigned" else None)
    return models.EventSubscription(
        delivery_with_resource_identity=models.DeliveryWithResourceIdentity(
            identity=identity,
            destination=models.WebHookEventSubscriptionDestination(
                endpoint_url=webhook.url("/hook?code=secret"),
                azure_active_directory_application_id_or_uri="api://orders",
            ),
        ),
        dead_letter_with_resource_identity=models.DeadLetterWithResourceIdentity(
            identity=identity,
            dead_letter_destination=models.StorageBlobDeadLetterDestination(resource_id="/r", blob_container_name="letters"),
        ),
    )


def main():
    client, webhook = management(), Webhook()
    client.topics.begin_create_or_update(GROUP, "named", models.Topic(location="local"), **PLAIN).result()
    operations = client.topic_event_subscriptions
    path = (GROUP, "named", "all")
    operations.begin_create_or_update(*path, identified(webhook), **PLAIN).result()
    shown = operations.get(*path, **PLAIN)
    delivery, letters = shown.delivery_with_resource_identity, shown.dead_letter_with_resource_identity
    assert shown.destination is None and shown.dead_letter_destination is None, shown
    assert delivery.identity.type == "SystemAssigned" and letters.identity.type == "SystemAssigned", shown
    assert delivery.destination.endpoint_base_url == webhook.url("/hook"), delivery.destination
    assert delivery.destination.azure_active_directory_application_id_or_uri == "api://orders", delivery.destination
    assert letters.dead_letter_destination.blob_container_name == "letters", letters
    assert webhook.handshakes[0].get("authorization") == "Bearer t", webhook.handshakes

    # What is read can be written again, and a change of another property keeps the identity.
    again = operations.begin_create_or_update(*path, shown, **PLAIN).result()
    assert again.delivery_with_resource_identity.identity.type == "SystemAssigned", again
    update = models.EventSubscriptionUpdateParameters(labels=["x"])
    changed = operations.begin_update(*path, update, **PLAIN).result()
    assert changed.labels == ["x"] and changed.delivery_with_resource_identity.identity.type == "SystemAssigned", changed
    url = operations.get_full_url(*path, **PLAIN).endpoint_url
    assert url == webhook.url("/hook?code=secret"), url

    wrong = identified(webhook, "UserAssigned")
    error = raises(HttpResponseError, lambda: operations.begin_create_or_update(*path, wrong, **PLAIN).result())
    assert error.status_code == 400 and "expected SystemAssigned" in error.message, error

    # Another destination takes its place.
    plain = models.WebHookEventSubscriptionDestination(endpoint_url=webhook.url("/plain"))
    update = models.EventSubscriptionUpdateParameters(destination=plain)
    changed = operations.begin_update(*path, update, **PLAIN).result()
    assert changed.delivery_with_resource_identity is None, changed
    assert changed.destination.endpoint_base_url == webhook.url("/plain"), changed


main()
