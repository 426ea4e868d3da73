package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/eventgrid/aznamespaces"
	grid "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/eventgrid/armeventgrid/v2"
	cloudevents "github.com/cloudevents/sdk-go/v2"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
)

// cloudEvents publishes and receives with the SDK of CloudEvents alone; its receiver answers the handshake itself.
func cloudEvents() {
	topics := must(grid.NewTopicsClient(subscriptionID, signIn(), armOptions()))
	endpoint, key := newTopic(topics, "go-ce-sdk", grid.InputSchemaCloudEventSchemaV10)
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	arrived := make(chan cloudevents.Event, 10)
	handshake := cehttp.WithDefaultOptionsHandlerFunc([]string{http.MethodPost}, 1000, []string{"*"}, true)
	receiver := must(cloudevents.NewClientHTTP(cloudevents.WithListener(listener), handshake))
	listening, stop := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() {
		check(receiver.StartReceiver(listening, func(event cloudevents.Event) { arrived <- event }))
	})
	subscribe("go-ce-sdk", to.Ptr("http://"+listener.Addr().String()), grid.EventDeliverySchemaCloudEventSchemaV10, 1)
	validated()

	sender := must(cloudevents.NewClientHTTP(cloudevents.WithTarget(endpoint), cloudevents.WithHeader("aeg-sas-key", key)))
	event := func(id string) cloudevents.Event {
		event := cloudevents.NewEvent()
		event.SetID(id)
		event.SetType("Order.Placed")
		event.SetSource("/orders")
		event.SetSubject("höhe")
		event.SetTime(now())
		event.SetExtension("tenant", "a")
		check(event.SetData(cloudevents.ApplicationJSON, map[string]any{"id": id}))
		return event
	}
	for mode, to := range map[string]context.Context{
		"binary": cloudevents.WithEncodingBinary(ctx), "structured": cloudevents.WithEncodingStructured(ctx),
	} {
		sent := event(mode)
		result := sender.Send(to, sent)
		is(mode+" was not accepted", cloudevents.IsACK(result))
		got := <-arrived
		check(got.Validate())
		equal("event", []string{got.ID(), got.Type(), got.Source(), got.Subject()}, []string{mode, "Order.Placed", "/orders", "höhe"})
		is("time", got.Time().Equal(sent.Time()))
		equal("extensions", got.Extensions(), map[string]any{"tenant": "a"})
		var data map[string]string
		check(got.DataAs(&data))
		equal("data", data["id"], mode)
	}
	batch := must(cehttp.NewHTTPRequestFromEvents(ctx, endpoint, []cloudevents.Event{event("b1"), event("b2")}))
	batch.Header.Set("aeg-sas-key", key)
	equal("batch", must(http.DefaultClient.Do(batch)).StatusCode, http.StatusOK)
	found := map[string]bool{(<-arrived).ID(): true, (<-arrived).ID(): true}
	equal("batch", found, map[string]bool{"b1": true, "b2": true})

	bare := event("bare")
	bare.DataEncoded = nil
	is("an event without data was not accepted", cloudevents.IsACK(sender.Send(cloudevents.WithEncodingBinary(ctx), bare)))
	got := <-arrived
	equal("bare", []any{got.ID(), len(got.Data())}, []any{"bare", 0})

	var result *cehttp.Result
	stranger := must(cloudevents.NewClientHTTP(cloudevents.WithTarget(endpoint), cloudevents.WithHeader("aeg-sas-key", "d3Jvbmc=")))
	refused := stranger.Send(ctx, event("refused"))
	is("a wrong key was accepted", cloudevents.ResultAs(refused, &result) && result.StatusCode == http.StatusUnauthorized)
	is(refused.Error(), strings.Contains(refused.Error(), "Unauthorized"))
	stop()
	ended.Wait()
	toNamespace(event)
}

// toNamespace publishes to a topic of a namespace in both modes, and pulls with Azure's client.
func toNamespace(event func(string) cloudevents.Event) {
	made := put("/namespaces/go-ce", map[string]any{"location": "local"})
	put("/namespaces/go-ce/topics/heat", map[string]any{})
	put("/namespaces/go-ce/topics/heat/eventSubscriptions/work", map[string]any{"properties": map[string]any{
		"deliveryConfiguration": map[string]any{"deliveryMode": "Queue"},
	}})
	endpoint := made["properties"].(map[string]any)["endpoint"].(string)
	key := call(http.MethodPost, "/namespaces/go-ce/listKeys", nil)["key1"].(string)
	sender := must(cloudevents.NewClientHTTP(
		cloudevents.WithTarget(endpoint+"/topics/heat:publish?api-version=2024-06-01"),
		cloudevents.WithHeader("Authorization", "SharedAccessKey "+key),
	))
	is("binary", cloudevents.IsACK(sender.Send(cloudevents.WithEncodingBinary(ctx), event("binary"))))
	is("structured", cloudevents.IsACK(sender.Send(cloudevents.WithEncodingStructured(ctx), event("structured"))))
	receiver := must(aznamespaces.NewReceiverClientWithSharedKeyCredential(endpoint, "heat", "work", azcore.NewKeyCredential(key), nil))
	found := map[string]string{}
	for _, one := range receive(receiver, 2) {
		found[one.Event.ID] = string(one.Event.Data.([]byte))
		equal("subject", *one.Event.Subject, "höhe")
	}
	equal("pulled", found, map[string]string{"binary": `{"id":"binary"}`, "structured": `{"id":"structured"}`})
}

// validated waits until the receiver has called back and the event subscription is ready.
func validated() {
	subscriptions := must(grid.NewTopicEventSubscriptionsClient(subscriptionID, signIn(), armOptions()))
	waitFor("the handshake", func() bool {
		got := must(subscriptions.Get(ctx, group, "go-ce-sdk", "all", nil))
		return *got.Properties.ProvisioningState == grid.EventSubscriptionProvisioningStateSucceeded
	})
}
