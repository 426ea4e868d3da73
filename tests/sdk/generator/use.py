"""Use the client that openapi-generator makes of the server's description."""

import importlib
import pkgutil
import sys

sys.path.insert(0, sys.argv[1])
import openapi_client

for module in pkgutil.walk_packages(openapi_client.__path__, "openapi_client."):
    importlib.import_module(module.name)

with openapi_client.ApiClient(openapi_client.Configuration(host=sys.argv[2])) as client:
    client.set_default_header("Authorization", f"Bearer {sys.argv[3]}")
    topics = openapi_client.TopicsApi(client)
    at = ("s", "rg", "generated")
    tags = {"made": "by a generated client"}
    made = topics.put_topic_with_http_info(*at, topic=openapi_client.Topic(location="local", tags=tags))
    assert made.status_code == 201 and made.data.name == "generated", made
    assert topics.get_topic(*at).tags == tags
    assert [topic.name for topic in topics.list_topics_of_group("s", "rg").value] == ["generated"]
    topics.delete_topic(*at)
