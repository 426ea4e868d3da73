package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	neturl "net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/messaging"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/eventgrid/azeventgrid"
	grid "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/eventgrid/armeventgrid/v2"
)

func publish() {
	hook := newWebhook()
	topics := must(grid.NewTopicsClient(subscriptionID, signIn(), armOptions()))
	publishEventGrid(topics, hook)
	publishCloudEvents(topics, hook)
	publishCustom(topics, hook)
	publishErrors(topics)
}

func now() time.Time { return time.Now().UTC() }

// subscribe creates an event subscription for everything.
func subscribe(topic string, address *string, schema grid.EventDeliverySchema, batch int32) {
	subscriptions := must(grid.NewTopicEventSubscriptionsClient(subscriptionID, signIn(), armOptions()))
	done(subscriptions.BeginCreateOrUpdate(ctx, group, topic, "all", grid.EventSubscription{
		Properties: &grid.EventSubscriptionProperties{
			Destination: &grid.WebHookEventSubscriptionDestination{
				EndpointType: to.Ptr(grid.EndpointTypeWebHook),
				Properties: &grid.WebHookEventSubscriptionDestinationProperties{
					EndpointURL: address, MaxEventsPerBatch: &batch,
				},
			},
			EventDeliverySchema: &schema,
		},
	}, nil))
}

// signature is a token that is made from a key, as Azure describes it; this SDK has no function for it.
func signature(endpoint, key string) string {
	in := now().Add(time.Hour).Format("1/2/2006 3:04:05 PM")
	unsigned := "r=" + neturl.QueryEscape(endpoint) + "&e=" + neturl.QueryEscape(in)
	mac := hmac.New(sha256.New, must(base64.StdEncoding.DecodeString(key)))
	mac.Write([]byte(unsigned))
	return unsigned + "&s=" + neturl.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// clients are one for each kind of credential.
func clients(endpoint, key string) map[string]*azeventgrid.Client {
	client, err := azeventgrid.NewClientWithSharedKeyCredential(endpoint, azcore.NewKeyCredential(key), nil)
	check(err)
	return map[string]*azeventgrid.Client{
		"key":    client,
		"sas":    must(azeventgrid.NewClientWithSAS(endpoint, azcore.NewSASCredential(signature(endpoint, key)), nil)),
		"bearer": must(azeventgrid.NewClient(endpoint, signIn(), nil)),
	}
}

func gridEvent(id string, data any) azeventgrid.Event {
	return azeventgrid.Event{
		ID: &id, Subject: to.Ptr("/s"), EventType: to.Ptr("Order.Placed"), DataVersion: to.Ptr("2.0"), Data: data,
		EventTime: to.Ptr(now()),
	}
}

func publishEventGrid(topics *grid.TopicsClient, hook *webhook) {
	endpoint, key := newTopic(topics, "go-eventgrid", grid.InputSchemaEventGridSchema)
	subscribe("go-eventgrid", hook.url("/eg"), grid.EventDeliverySchemaEventGridSchema, 1)
	data := map[string]any{"total": 12.5, "name": "höhe ✓", "nothing": nil}
	for kind, client := range clients(endpoint, key) {
		sent := gridEvent(kind, data)
		must(client.PublishEvents(ctx, []azeventgrid.Event{sent}, nil))
		var got []azeventgrid.Event
		check(json.Unmarshal(hook.take("/eg", 1)[0].body, &got))
		equal("id", *got[0].ID, kind)
		is("time", got[0].EventTime.Equal(*sent.EventTime))
		equal("data", got[0].Data, any(data))
		equal("version", []string{*got[0].DataVersion, *got[0].MetadataVersion}, []string{"2.0", "1"})
		is(*got[0].Topic, strings.HasSuffix(*got[0].Topic, "/topics/go-eventgrid"))
	}
	var many []azeventgrid.Event
	for number := range 300 {
		many = append(many, gridEvent(fmt.Sprint(number), number))
	}
	must(clients(endpoint, key)["key"].PublishEvents(ctx, many, nil))
	hook.take("/eg", 300)
}

func cloudEventsOf(source string, ids ...string) []messaging.CloudEvent {
	var all []messaging.CloudEvent
	for _, id := range ids {
		event := must(messaging.NewCloudEvent(source, "Order.Placed", map[string]any{"total": 12.5}, &messaging.CloudEventOptions{
			Subject: to.Ptr("/s"), Extensions: map[string]any{"tenant": "a"},
		}))
		event.ID = id
		all = append(all, event)
	}
	return all
}

// read are the CloudEvents of a request, one or a batch.
func read(request received) []messaging.CloudEvent {
	var all []messaging.CloudEvent
	if strings.HasPrefix(request.header.Get("content-type"), "application/cloudevents-batch+json") {
		check(json.Unmarshal(request.body, &all))
		return all
	}
	var one messaging.CloudEvent
	check(json.Unmarshal(request.body, &one))
	return []messaging.CloudEvent{one}
}

func publishCloudEvents(topics *grid.TopicsClient, hook *webhook) {
	endpoint, key := newTopic(topics, "go-cloudevents", grid.InputSchemaCloudEventSchemaV10)
	subscribe("go-cloudevents", hook.url("/ce"), grid.EventDeliverySchemaCloudEventSchemaV10, 1)
	for kind, client := range clients(endpoint, key) {
		must(client.PublishCloudEvents(ctx, cloudEventsOf("/orders", kind), nil))
		got := read(hook.take("/ce", 1)[0])[0]
		equal("event", []string{got.ID, got.Type, got.Source, *got.Subject}, []string{kind, "Order.Placed", "/orders", "/s"})
		equal("extensions", got.Extensions, map[string]any{"tenant": "a"})
		var data map[string]float64
		check(json.Unmarshal(got.Data.([]byte), &data))
		equal("data", data["total"], 12.5)
	}
	bytes := must(messaging.NewCloudEvent("/orders", "Bytes", []byte{0, 255, 7}, nil))
	must(clients(endpoint, key)["key"].PublishCloudEvents(ctx, []messaging.CloudEvent{bytes}, nil))
	equal("bytes", read(hook.take("/ce", 1)[0])[0].Data, any([]byte{0, 255, 7}))
	batched, batchedKey := newTopic(topics, "go-batches", grid.InputSchemaCloudEventSchemaV10)
	subscribe("go-batches", hook.url("/batch"), grid.EventDeliverySchemaCloudEventSchemaV10, 10)
	must(clients(batched, batchedKey)["key"].PublishCloudEvents(ctx, cloudEventsOf("/orders", "1", "2", "3"), nil))
	found := map[string]bool{}
	for len(found) < 3 {
		for _, event := range read(hook.take("/batch", 1)[0]) {
			found[event.ID] = true
		}
	}
	equal("batch", found, map[string]bool{"1": true, "2": true, "3": true})
}

func publishCustom(topics *grid.TopicsClient, hook *webhook) {
	made := done(topics.BeginCreateOrUpdate(ctx, group, "go-custom", grid.Topic{
		Location: to.Ptr("local"),
		Properties: &grid.TopicProperties{
			InputSchema: to.Ptr(grid.InputSchemaCustomEventSchema),
			InputSchemaMapping: &grid.JSONInputSchemaMapping{
				InputSchemaMappingType: to.Ptr(grid.InputSchemaMappingTypeJSON),
				Properties: &grid.JSONInputSchemaMappingProperties{
					ID:          &grid.JSONField{SourceField: to.Ptr("number")},
					EventType:   &grid.JSONFieldWithDefault{SourceField: to.Ptr("kind"), DefaultValue: to.Ptr("None")},
					Subject:     &grid.JSONFieldWithDefault{DefaultValue: to.Ptr("orders")},
					DataVersion: &grid.JSONFieldWithDefault{DefaultValue: to.Ptr("")},
				},
			},
		},
	}, nil))
	keys := must(topics.ListSharedAccessKeys(ctx, group, "go-custom", nil))
	subscribe("go-custom", hook.url("/custom"), grid.EventDeliverySchemaEventGridSchema, 1)
	client := clients(*made.Properties.Endpoint, *keys.Key2)["key"]
	must(client.PublishCustomEventEvents(ctx, []any{map[string]any{"number": "n1", "kind": "Order.Placed"}}, nil))
	var got []azeventgrid.Event
	check(json.Unmarshal(hook.take("/custom", 1)[0].body, &got))
	equal("mapped", []string{*got[0].ID, *got[0].EventType, *got[0].Subject}, []string{"n1", "Order.Placed", "orders"})
}

func publishErrors(topics *grid.TopicsClient) {
	endpoint, key := newTopic(topics, "go-errors", grid.InputSchemaEventGridSchema)
	good := clients(endpoint, key)["key"]
	wrong := clients(endpoint, "d3Jvbmc=")["key"]
	_, err := wrong.PublishEvents(ctx, []azeventgrid.Event{gridEvent("1", 1)}, nil)
	fails(err, http.StatusUnauthorized, "Unauthorized", "key")
	_, err = good.PublishEvents(ctx, []azeventgrid.Event{gridEvent("1", strings.Repeat("x", 1_100_000))}, nil)
	fails(err, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "")
	_, err = good.PublishCloudEvents(ctx, cloudEventsOf("/orders", "1"), nil)
	fails(err, http.StatusBadRequest, "BadRequest", "")
	nowhere := clients(strings.Replace(endpoint, "/go-errors/", "/go-none/", 1), key)["key"]
	_, err = nowhere.PublishEvents(ctx, []azeventgrid.Event{gridEvent("1", 1)}, nil)
	fails(err, http.StatusNotFound, "NotFound", "")
}
