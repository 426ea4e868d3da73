// Uses the client that openapi-generator makes of the server's description.
package main

import (
	"context"
	"log"
	"os"

	openapi "gridhook.test/client"
)

func main() {
	configuration := openapi.NewConfiguration()
	configuration.Servers = openapi.ServerConfigurations{{URL: os.Args[1]}}
	configuration.AddDefaultHeader("Authorization", "Bearer "+os.Args[2])
	client := openapi.NewAPIClient(configuration)
	ctx := context.Background()

	topic := openapi.NewTopic()
	topic.SetLocation("local")
	topic.SetTags(map[string]string{"made": "by a generated client"})
	made, response, err := client.TopicsAPI.PutTopic(ctx, "s", "rg", "generated").Topic(*topic).Execute()
	if err != nil || response.StatusCode != 201 || made.Topic == nil || made.Topic.GetName() != "generated" {
		log.Fatalf("PUT: %v %v %v", made, response, err)
	}
	shown, _, err := client.TopicsAPI.GetTopic(ctx, "s", "rg", "generated").Execute()
	if err != nil || shown.GetTags()["made"] != "by a generated client" {
		log.Fatalf("GET: %v %v", shown, err)
	}
	list, _, err := client.TopicsAPI.ListTopicsOfGroup(ctx, "s", "rg").Execute()
	if err != nil || len(list.GetValue()) != 1 {
		log.Fatalf("list: %v %v", list, err)
	}
	if _, err := client.TopicsAPI.DeleteTopic(ctx, "s", "rg", "generated").Execute(); err != nil {
		log.Fatalf("DELETE: %v", err)
	}
}
