package main

import (
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/eventgrid/azeventgrid"
	grid "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/eventgrid/armeventgrid/v2"
)

func manage() {
	hook := newWebhook()
	topics := must(grid.NewTopicsClient(subscriptionID, signIn(), armOptions()))
	manageTopics(topics)
	manageSubscriptions(topics, hook)
	manageDomains(hook)
	manageErrors(topics)
}

func newTopic(topics *grid.TopicsClient, name string, schema grid.InputSchema) (string, string) {
	topic := grid.Topic{Location: to.Ptr("local"), Properties: &grid.TopicProperties{InputSchema: &schema}}
	made := done(topics.BeginCreateOrUpdate(ctx, group, name, topic, nil))
	keys := must(topics.ListSharedAccessKeys(ctx, group, name, nil))
	return *made.Properties.Endpoint, *keys.Key1
}

func manageTopics(topics *grid.TopicsClient) {
	topic := grid.Topic{
		Location: to.Ptr("local"),
		Tags:     map[string]*string{"team": to.Ptr("a")},
		Properties: &grid.TopicProperties{
			InputSchema:         to.Ptr(grid.InputSchemaEventGridSchema),
			PublicNetworkAccess: to.Ptr(grid.PublicNetworkAccessEnabled),
		},
	}
	made := done(topics.BeginCreateOrUpdate(ctx, group, "go-topic", topic, nil))
	equal("state", *made.Properties.ProvisioningState, grid.TopicProvisioningStateSucceeded)
	is(*made.ID, strings.HasSuffix(*made.ID, "/resourceGroups/go/providers/Microsoft.EventGrid/topics/go-topic"))
	is(*made.Properties.Endpoint, strings.HasPrefix(*made.Properties.Endpoint, "https://"))
	is("no time of creation", made.SystemData != nil && made.SystemData.CreatedAt != nil)
	change := grid.TopicUpdateParameters{Tags: map[string]*string{"team": to.Ptr("b")}}
	done(topics.BeginUpdate(ctx, group, "go-topic", change, nil))
	got := must(topics.Get(ctx, group, "go-topic", nil))
	equal("tag", *got.Tags["team"], "b")
	equal("schema", *got.Properties.InputSchema, grid.InputSchemaEventGridSchema)

	for _, name := range []string{"go-page-0", "go-page-1", "go-page-2"} {
		newTopic(topics, name, grid.InputSchemaEventGridSchema)
	}
	filter, top := to.Ptr("contains(name, 'go-page')"), to.Ptr[int32](2)
	paged := topics.NewListByResourceGroupPager(group, &grid.TopicsClientListByResourceGroupOptions{Filter: filter, Top: top})
	equal("pages", pages(paged, func(page grid.TopicsClientListByResourceGroupResponse) []string {
		return namesOf(page.Value, func(one *grid.Topic) *string { return one.Name })
	}), [][]string{{"go-page-0", "go-page-1"}, {"go-page-2"}})
	done(topics.BeginDelete(ctx, group, "go-page-2", nil))
	_, err := topics.Get(ctx, group, "go-page-2", nil)
	fails(err, http.StatusNotFound, "ResourceNotFound", "go-page-2")

	before := must(topics.ListSharedAccessKeys(ctx, group, "go-topic", nil))
	request := grid.TopicRegenerateKeyRequest{KeyName: to.Ptr("key1")}
	after := done(topics.BeginRegenerateKey(ctx, group, "go-topic", request, nil))
	is("key1 is the same", *after.Key1 != *before.Key1)
	equal("key2", *after.Key2, *before.Key2)
}

func static(name, value string, secret bool) *grid.StaticDeliveryAttributeMapping {
	return &grid.StaticDeliveryAttributeMapping{
		Name:       &name,
		Type:       to.Ptr(grid.DeliveryAttributeMappingTypeStatic),
		Properties: &grid.StaticDeliveryAttributeMappingProperties{Value: &value, IsSecret: &secret},
	}
}

func subscription(url *string) grid.EventSubscription {
	return grid.EventSubscription{Properties: &grid.EventSubscriptionProperties{
		Destination: &grid.WebHookEventSubscriptionDestination{
			EndpointType: to.Ptr(grid.EndpointTypeWebHook),
			Properties: &grid.WebHookEventSubscriptionDestinationProperties{
				EndpointURL:                   url,
				MaxEventsPerBatch:             to.Ptr[int32](1),
				PreferredBatchSizeInKilobytes: to.Ptr[int32](64),
				DeliveryAttributeMappings: []grid.DeliveryAttributeMappingClassification{
					static("tenant", "a", false),
					static("pass", "swordfish", true),
					&grid.DynamicDeliveryAttributeMapping{
						Name:       to.Ptr("total"),
						Type:       to.Ptr(grid.DeliveryAttributeMappingTypeDynamic),
						Properties: &grid.DynamicDeliveryAttributeMappingProperties{SourceField: to.Ptr("data.total")},
					},
				},
			},
		},
		EventDeliverySchema: to.Ptr(grid.EventDeliverySchemaEventGridSchema),
		Filter: &grid.EventSubscriptionFilter{
			SubjectBeginsWith:  to.Ptr("/orders"),
			IncludedEventTypes: []*string{to.Ptr("Order.Placed")},
			AdvancedFilters: []grid.AdvancedFilterClassification{
				&grid.StringInAdvancedFilter{
					OperatorType: to.Ptr(grid.AdvancedFilterOperatorTypeStringIn),
					Key:          to.Ptr("data.region"),
					Values:       []*string{to.Ptr("eu"), to.Ptr("us")},
				},
				&grid.NumberInRangeAdvancedFilter{
					OperatorType: to.Ptr(grid.AdvancedFilterOperatorTypeNumberInRange),
					Key:          to.Ptr("data.total"),
					Values:       [][]*float64{{to.Ptr(1.0), to.Ptr(99.5)}},
				},
			},
		},
		Labels:      []*string{to.Ptr("first")},
		RetryPolicy: &grid.RetryPolicy{MaxDeliveryAttempts: to.Ptr[int32](7), EventTimeToLiveInMinutes: to.Ptr[int32](60)},
		DeadLetterDestination: &grid.StorageBlobDeadLetterDestination{
			EndpointType: to.Ptr(grid.DeadLetterEndPointTypeStorageBlob),
			Properties: &grid.StorageBlobDeadLetterDestinationProperties{
				ResourceID: to.Ptr("/r"), BlobContainerName: to.Ptr("letters"),
			},
		},
	}}
}

func manageSubscriptions(topics *grid.TopicsClient, hook *webhook) {
	subscriptions := must(grid.NewTopicEventSubscriptionsClient(subscriptionID, signIn(), armOptions()))
	endpoint, key := newTopic(topics, "go-orders", grid.InputSchemaEventGridSchema)
	address := hook.url("/all")
	done(subscriptions.BeginCreateOrUpdate(ctx, group, "go-orders", "all", subscription(address), nil))

	// Read, change and write back: a secret is never shown, and stays.
	got := must(subscriptions.Get(ctx, group, "go-orders", "all", nil)).EventSubscription
	equal("state", *got.Properties.ProvisioningState, grid.EventSubscriptionProvisioningStateSucceeded)
	equal("attempts", *got.Properties.RetryPolicy.MaxDeliveryAttempts, int32(7))
	equal("time to live", *got.Properties.RetryPolicy.EventTimeToLiveInMinutes, int32(60))
	letters := got.Properties.DeadLetterDestination.(*grid.StorageBlobDeadLetterDestination)
	equal("container", *letters.Properties.BlobContainerName, "letters")
	equal("filters", got.Properties.Filter.AdvancedFilters, subscription(nil).Properties.Filter.AdvancedFilters)
	equal("subject", *got.Properties.Filter.SubjectBeginsWith, "/orders")
	hooked := got.Properties.Destination.(*grid.WebHookEventSubscriptionDestination)
	equal("base URL", *hooked.Properties.EndpointBaseURL, *address)
	secret := hooked.Properties.DeliveryAttributeMappings[1].(*grid.StaticDeliveryAttributeMapping)
	equal("secret", *secret.Properties.Value, "Hidden")
	full := must(subscriptions.GetFullURL(ctx, group, "go-orders", "all", nil))
	equal("full URL", *full.EndpointURL, *address)
	got.Properties.Labels = []*string{to.Ptr("second"), to.Ptr("third")}
	hooked.Properties.EndpointURL = full.EndpointURL
	again := done(subscriptions.BeginCreateOrUpdate(ctx, group, "go-orders", "all", got, nil))
	equal("labels", len(again.Properties.Labels), 2)
	attributes := must(subscriptions.GetDeliveryAttributes(ctx, group, "go-orders", "all", nil))
	equal("attributes", attributes.Value[1], grid.DeliveryAttributeMappingClassification(static("pass", "swordfish", true)))
	update := grid.EventSubscriptionUpdateParameters{RetryPolicy: &grid.RetryPolicy{
		MaxDeliveryAttempts: to.Ptr[int32](3), EventTimeToLiveInMinutes: to.Ptr[int32](60),
	}}
	done(subscriptions.BeginUpdate(ctx, group, "go-orders", "all", update, nil))
	changed := must(subscriptions.Get(ctx, group, "go-orders", "all", nil))
	equal("attempts", *changed.Properties.RetryPolicy.MaxDeliveryAttempts, int32(3))
	equal("labels", *changed.Properties.Labels[1], "third")

	// What is stored is what is done: one of three events passes the filter, with the secret in a header.
	client := must(azeventgrid.NewClientWithSharedKeyCredential(endpoint, azcore.NewKeyCredential(key), nil))
	event := func(id, region string, total float64) azeventgrid.Event {
		return azeventgrid.Event{
			ID: &id, Subject: to.Ptr("/orders/1"), EventType: to.Ptr("Order.Placed"), DataVersion: to.Ptr("1"),
			EventTime: to.Ptr(now()), Data: map[string]any{"region": region, "total": total},
		}
	}
	sent := []azeventgrid.Event{event("elsewhere", "asia", 5), event("dear", "eu", 100), event("passes", "EU", 12.5)}
	must(client.PublishEvents(ctx, sent, nil))
	header := hook.take("/all", 1)[0].header
	equal("headers", []string{header.Get("tenant"), header.Get("pass"), header.Get("total")}, []string{"a", "swordfish", "12.5"})

	pager := subscriptions.NewListPager(group, "go-orders", nil)
	equal("list", pages(pager, func(page grid.TopicEventSubscriptionsClientListResponse) []string {
		return namesOf(page.Value, func(one *grid.EventSubscription) *string { return one.Name })
	}), [][]string{{"all"}})
	done(subscriptions.BeginDelete(ctx, group, "go-orders", "all", nil))
	_, err := subscriptions.Get(ctx, group, "go-orders", "all", nil)
	fails(err, http.StatusNotFound, "ResourceNotFound", "all")
}

func manageDomains(hook *webhook) {
	domains := must(grid.NewDomainsClient(subscriptionID, signIn(), armOptions()))
	inDomain := must(grid.NewDomainTopicsClient(subscriptionID, signIn(), armOptions()))
	subscriptions := must(grid.NewDomainTopicEventSubscriptionsClient(subscriptionID, signIn(), armOptions()))
	domain := grid.Domain{Location: to.Ptr("local"), Properties: &grid.DomainProperties{
		InputSchema: to.Ptr(grid.InputSchemaCloudEventSchemaV10),
	}}
	made := done(domains.BeginCreateOrUpdate(ctx, group, "go-domain", domain, nil))
	equal("state", *made.Properties.ProvisioningState, grid.DomainProvisioningStateSucceeded)
	done(inDomain.BeginCreateOrUpdate(ctx, group, "go-domain", "tenant-a", nil))
	hooked := grid.EventSubscription{Properties: &grid.EventSubscriptionProperties{
		Destination: &grid.WebHookEventSubscriptionDestination{
			EndpointType: to.Ptr(grid.EndpointTypeWebHook),
			Properties:   &grid.WebHookEventSubscriptionDestinationProperties{EndpointURL: hook.url("/domain")},
		},
		EventDeliverySchema: to.Ptr(grid.EventDeliverySchemaCloudEventSchemaV10),
	}}
	done(subscriptions.BeginCreateOrUpdate(ctx, group, "go-domain", "tenant-a", "all", hooked, nil))
	before := must(domains.ListSharedAccessKeys(ctx, group, "go-domain", nil))
	request := grid.DomainRegenerateKeyRequest{KeyName: to.Ptr("key2")}
	after := must(domains.RegenerateKey(ctx, group, "go-domain", request, nil))
	is("key2 is the same", *after.Key2 != *before.Key2)
	client := must(azeventgrid.NewClientWithSharedKeyCredential(*made.Properties.Endpoint, azcore.NewKeyCredential(*after.Key2), nil))
	must(client.PublishCloudEvents(ctx, cloudEventsOf("tenant-a", "in-domain"), nil))
	equal("event", read(hook.take("/domain", 1)[0])[0].ID, "in-domain")
	stale := must(azeventgrid.NewClientWithSharedKeyCredential(*made.Properties.Endpoint, azcore.NewKeyCredential(*before.Key2), nil))
	_, err := stale.PublishCloudEvents(ctx, cloudEventsOf("tenant-a", "stale"), nil)
	fails(err, http.StatusUnauthorized, "Unauthorized", "")
	update := grid.DomainUpdateParameters{Tags: map[string]*string{"team": to.Ptr("b")}}
	done(domains.BeginUpdate(ctx, group, "go-domain", update, nil))
	equal("tag", *must(domains.Get(ctx, group, "go-domain", nil)).Tags["team"], "b")
	pager := inDomain.NewListByDomainPager(group, "go-domain", nil)
	equal("topics of the domain", pages(pager, func(page grid.DomainTopicsClientListByDomainResponse) []string {
		return namesOf(page.Value, func(one *grid.DomainTopic) *string { return one.Name })
	}), [][]string{{"tenant-a"}})
	done(domains.BeginDelete(ctx, group, "go-domain", nil))
	_, err = domains.Get(ctx, group, "go-domain", nil)
	fails(err, http.StatusNotFound, "ResourceNotFound", "go-domain")
}

func manageErrors(topics *grid.TopicsClient) {
	_, err := topics.BeginCreateOrUpdate(ctx, group, "x", grid.Topic{Location: to.Ptr("local")}, nil)
	fails(err, http.StatusBadRequest, "InvalidRequest", "3")
	_, err = topics.BeginRegenerateKey(ctx, group, "go-topic", grid.TopicRegenerateKeyRequest{KeyName: to.Ptr("key3")}, nil)
	fails(err, http.StatusBadRequest, "InvalidRequest", "key3")
	wrong := must(grid.NewTopicsClient(subscriptionID, signInWith("wrong"), armOptions()))
	_, err = wrong.Get(ctx, group, "go-topic", nil)
	is("signed in with a wrong secret", err != nil && strings.Contains(err.Error(), "AADSTS7000215"))
}
