//! Routes of what Azure has and this server does not: lists are empty, nothing can be created. In a
//! summary, `{resource}` is the resource type.

use super::super::{
    operation::{ArmOperation, delete, get, handler, patch, put},
    unsupported,
};
use crate::openapi::{CHANGING, Description, any_object, describe};

/// Resource types that people assign to resources in Azure: the type, its OpenAPI id and its name.
pub(super) const UNASSIGNED: [(&str, &str, &str); 2] = [
    ("locks", "Locks", "locks"),
    ("roleAssignments", "RoleAssignments", "role assignments"),
];

/// Event Grid's resource types that this server does not support.
pub(super) const UNSUPPORTED_TYPES: [(&str, &str); 6] = [
    ("systemTopics", "systemTopicName"),
    ("partnerTopics", "partnerTopicName"),
    ("partnerNamespaces", "partnerNamespaceName"),
    ("partnerRegistrations", "partnerRegistrationName"),
    ("partnerConfigurations", "partnerConfigurationName"),
    ("partnerDestinations", "partnerDestinationName"),
];

const GET: Description = describe(
    "get",
    "Get one of {resource}, which are not supported (always 404)",
)
.returns_json(200, "Never sent: none exists", any_object)
.fails(CHANGING);

const fn refused(id: &'static str) -> Description {
    describe(
        id,
        "Refuse to create or change {resource}, which are not supported",
    )
    .takes_json(false, any_object, "{}")
    .returns_json(201, "Never sent: none can be created", any_object)
}

pub(super) static UNSUPPORTED_LIST: [ArmOperation; 1] = [get(
    handler!(unsupported::list),
    describe(
        "list",
        "List {resource}, which are not supported (always empty)",
    )
    .lists_json(any_object),
)];

pub(super) static UNSUPPORTED_ITEM: [ArmOperation; 1] = [get(handler!(unsupported::get), GET)];

pub(super) static UNSUPPORTED: [ArmOperation; 4] = [
    get(handler!(unsupported::get), GET),
    put(handler!(unsupported::refuse), refused("put"))
        .with_difference(handler!(unsupported::refuse)),
    patch(handler!(unsupported::refuse), refused("patch")),
    delete(
        handler!(unsupported::delete),
        describe(
            "delete",
            "Delete one of {resource}, which are not supported (no effect)",
        )
        .returns_nothing(204, "The resource is deleted"),
    ),
];
