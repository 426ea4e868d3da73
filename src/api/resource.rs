//! What the resources of Azure Resource Manager have in common: lists, names, system data and
//! errors.

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema},
};

use gridhook_record::subscription::IdentityType;

/// A list, or a page of it.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub value: Vec<T>,
    /// Missing on the last page
    pub next_link: Option<String>,
}

impl<T> Page<T> {
    /// A page that is the whole list.
    pub fn whole(value: Vec<T>) -> Self {
        Self {
            value,
            next_link: None,
        }
    }
}

/// A property that only the server sets. A request may have any value for it, which is ignored, so
/// that a client can send back what it got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ReadOnly<T>(pub Option<T>);

impl<T> ReadOnly<T> {
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

impl<T> Default for ReadOnly<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> From<T> for ReadOnly<T> {
    fn from(value: T) -> Self {
        Self(Some(value))
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for ReadOnly<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Option::<Value>::deserialize(deserializer)?;
        Ok(Self(value.and_then(|value| T::deserialize(value).ok())))
    }
}

/// The names of the properties of a type: those that a request sets, and those that only the server
/// sets.
pub fn property_keys<T: PartialSchema>() -> (Vec<String>, Vec<String>) {
    let RefOr::T(Schema::Object(object)) = T::schema() else {
        return (Vec::new(), Vec::new());
    };
    let is_settable = |schema: &RefOr<Schema>| match schema {
        RefOr::T(Schema::Object(property)) => property.read_only != Some(true),
        RefOr::T(_) | RefOr::Ref(_) => true,
    };
    let (settable, read_only): (Vec<_>, Vec<_>) = object
        .properties
        .into_iter()
        .partition(|(_, schema)| is_settable(schema));
    let names = |properties: Vec<(String, RefOr<Schema>)>| {
        properties.into_iter().map(|(name, _)| name).collect()
    };
    (names(settable), names(read_only))
}

/// What every resource has, for commands that need no more.
#[derive(Clone, Debug, Deserialize)]
pub struct NamedResource {
    pub id: String,
    pub name: String,
}

/// Identities and times of the creation and the last change of a resource.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SystemData)]
pub struct SystemDataView {
    /// Identity that created the resource; missing for resources of older versions
    pub created_by: Option<String>,
    /// Kind of the identity that created the resource
    pub created_by_type: Option<IdentityType>,
    /// When the resource was created
    #[schema(format = DateTime)]
    pub created_at: Option<String>,
    /// Identity that last changed the resource
    pub last_modified_by: String,
    /// Kind of the identity that last changed the resource
    pub last_modified_by_type: IdentityType,
    /// Time of the last change
    #[schema(format = DateTime)]
    pub last_modified_at: String,
}

/// The body of an error response of the control plane.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = ControlError)]
pub struct ErrorResponse {
    /// Error of the request, or of one lock token
    pub error: ErrorBody,
}

/// An error. Errors of the data plane have `code`, `message` and `details` only.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = ControlErrorBody)]
pub struct ErrorBody {
    /// Machine-readable code of the error
    pub code: String,
    /// Explanation of the error for people
    pub message: String,
    /// Key or part of the request that the error is about
    pub target: Option<String>,
    /// Further causes of the error
    #[serde(default)]
    #[schema(required = true)]
    pub details: Vec<ErrorDetail>,
    /// `additionalInfo` of ARM: the id of the request.
    #[serde(
        default,
        rename = "additionalInfo",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub additional_info: Vec<AdditionalInfo>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = ControlErrorAdditionalInfo)]
pub struct AdditionalInfo {
    /// Kind of the information, always `RequestId`
    #[serde(rename = "type")]
    pub kind: String,
    /// Id of the request.
    pub info: RequestIdInfo,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ControlErrorRequestId)]
pub struct RequestIdInfo {
    /// Id of the request, as in the header `x-ms-request-id`.
    pub request_id: String,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = ControlErrorDetail)]
pub struct ErrorDetail {
    /// Machine-readable code of the error
    pub code: String,
    /// Explanation of the error for people
    pub message: String,
}
