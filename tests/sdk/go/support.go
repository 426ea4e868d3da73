package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

const (
	subscriptionID = "00000000-0000-0000-0000-00000000000a"
	group          = "go"
)

var (
	ctx       = context.Background()
	url       = os.Getenv("GRIDHOOK_URL")
	authority = os.Getenv("GRIDHOOK_TEST_AUTHORITY")
	audience  = os.Getenv("GRIDHOOK_TEST_AUDIENCE")
	options   = cloudOptions()
)

// cloudOptions describe a cloud that is not Azure's.
func cloudOptions() azcore.ClientOptions {
	gridhook := cloud.Configuration{
		ActiveDirectoryAuthorityHost: authority,
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: url, Audience: audience},
		},
	}
	options := azcore.ClientOptions{Cloud: gridhook}
	return options
}

// signIn returns the credential of an application that the token service knows.
func signIn() azcore.TokenCredential {
	return signInWith(os.Getenv("GRIDHOOK_TEST_SECRET"))
}

func signInWith(secret string) azcore.TokenCredential {
	tenant, client := os.Getenv("GRIDHOOK_TEST_TENANT"), os.Getenv("GRIDHOOK_TEST_CLIENT")
	credential, err := azidentity.NewClientSecretCredential(tenant, client, secret, &azidentity.ClientSecretCredentialOptions{
		ClientOptions:            options,
		DisableInstanceDiscovery: true,
	})
	check(err)
	return credential
}

func armOptions() *arm.ClientOptions {
	return &arm.ClientOptions{ClientOptions: options}
}

// put creates a resource for which the management client has no type.
func put(path string, body any) map[string]any {
	return call(http.MethodPut, path, body)
}

func call(method, path string, body any) map[string]any {
	client, err := arm.NewClient("scenarios", "v1.0.0", signIn(), armOptions())
	check(err)
	base := "/subscriptions/" + subscriptionID + "/resourceGroups/" + group + "/providers/Microsoft.EventGrid"
	request, err := runtime.NewRequest(ctx, method, runtime.JoinPaths(client.Endpoint(), base, path))
	check(err)
	request.Raw().URL.RawQuery = "api-version=2025-02-15"
	if body != nil {
		check(runtime.MarshalAsJSON(request, body))
	}
	response, err := client.Pipeline().Do(request)
	check(err)
	if !runtime.HasStatusCode(response, http.StatusOK, http.StatusCreated) {
		check(runtime.NewResponseError(response))
	}
	var answer map[string]any
	check(runtime.UnmarshalAsJSON(response, &answer))
	return answer
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// must returns a value whose call succeeded.
func must[T any](value T, err error) T {
	check(err)
	return value
}

// done waits for the end of a long-running operation.
func done[T any](poller *runtime.Poller[T], err error) T {
	check(err)
	return must(poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second}))
}

func equal(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		panic(fmt.Sprintf("%s: %#v instead of %#v", what, got, want))
	}
}

func is(what string, so bool) {
	if !so {
		panic(what)
	}
}

// fails returns the error of a call, which must be the SDK's own with this status and code, and text that names it.
func fails(err error, status int, code, text string) {
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		panic(fmt.Sprintf("no error of the SDK with %d %s: %v", status, code, err))
	}
	equal("status", response.StatusCode, status)
	equal("code", response.ErrorCode, code)
	is(fmt.Sprintf("%q is not in %v", text, err), strings.Contains(err.Error(), text))
}

// pages are the pages of a list, each as the names that are on it.
func pages[T any](pager *runtime.Pager[T], names func(T) []string) [][]string {
	var all [][]string
	for pager.More() {
		all = append(all, names(must(pager.NextPage(ctx))))
	}
	return all
}

func namesOf[T any](values []*T, name func(*T) *string) []string {
	var names []string
	for _, value := range values {
		names = append(names, *name(value))
	}
	return names
}

func waitFor(what string, so func() bool) {
	for end := time.Now().Add(60 * time.Second); !so(); time.Sleep(10 * time.Millisecond) {
		is("waited for "+what, time.Now().Before(end))
	}
}

// received is a request as it came to the webhook.
type received struct {
	path   string
	header http.Header
	body   []byte
}

func (one received) request() *http.Request {
	request := must(http.NewRequest(http.MethodPost, one.path, strings.NewReader(string(one.body))))
	request.Header = one.header
	return request
}

// webhook is a server that answers both handshakes and keeps the notifications that it gets.
type webhook struct {
	server   *httptest.Server
	mutex    sync.Mutex
	requests []received
}

func newWebhook() *webhook {
	hook := &webhook{}
	hook.server = httptest.NewServer(hook)
	return hook
}

func (hook *webhook) url(path string) *string {
	address := hook.server.URL + path
	return &address
}

func (hook *webhook) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	if request.Method == http.MethodOptions {
		answer.Header().Set("WebHook-Allowed-Origin", request.Header.Get("WebHook-Request-Origin"))
		answer.Header().Set("WebHook-Allowed-Rate", "*")
		return
	}
	body := must(io.ReadAll(request.Body))
	if request.Header.Get("aeg-event-type") == "SubscriptionValidation" {
		var events []struct {
			Data struct{ ValidationCode string }
		}
		check(json.Unmarshal(body, &events))
		check(json.NewEncoder(answer).Encode(map[string]string{"validationResponse": events[0].Data.ValidationCode}))
		return
	}
	hook.mutex.Lock()
	defer hook.mutex.Unlock()
	hook.requests = append(hook.requests, received{request.URL.Path, request.Header, body})
}

// take waits for this number of notifications at a path, and removes them.
func (hook *webhook) take(path string, count int) []received {
	var taken []received
	waitFor(fmt.Sprintf("%d requests at %s", count, path), func() bool {
		hook.mutex.Lock()
		defer hook.mutex.Unlock()
		var others []received
		taken = nil
		for _, one := range hook.requests {
			if one.path == path && len(taken) < count {
				taken = append(taken, one)
			} else {
				others = append(others, one)
			}
		}
		if len(taken) == count {
			hook.requests = others
		}
		return len(taken) == count
	})
	return taken
}
