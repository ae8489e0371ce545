package spec

var datastoreKind = kind{word: "datastore", collection: "datastores", base: "properties", body: byExactKey("type", func() map[string]typ {
	return map[string]typ{
		"azure_blob": datastoreOf("AzureBlob", storageAccount,
			f("container_name", text, required),
			// Azure's files have the first two only.
			f("credentials", credentials(accountKey, sasToken, servicePrincipal, certificate), def(none()))),
		"azure_file": datastoreOf("AzureFile", storageAccount,
			f("file_share_name", text, required),
			f("credentials", credentials(accountKey, sasToken), def(none()))),
		"azure_data_lake_gen2": datastoreOf("AzureDataLakeGen2", storageAccount,
			f("filesystem", text, required),
			// Azure's files have the first two only; the service takes the others as well.
			f("credentials", credentials(servicePrincipal, certificate, accountKey, sasToken), def(none()))),
		"azure_data_lake_gen1": datastoreOf("AzureDataLakeGen1",
			f("store_name", text, required),
			f("credentials", credentials(servicePrincipal, certificate), def(none()))),
		"one_lake": datastoreOf("OneLake",
			f("one_lake_workspace_name", text, required),
			f("artifact", obj(
				f("name", text, to("artifactName"), required),
				f("type", looseEnum("lake_house=LakeHouse"), to("artifactType"), def("LakeHouse")),
			), required),
			f("endpoint", text, required),
			f("credentials", credentials(servicePrincipal), def(none()))),
		// These are not Azure's.
		"s3": datastoreOf("S3",
			f("bucket", text, required),
			f("endpoint", text),
			f("region", text),
			f("credentials", credentials(accessKey), def(none()))),
		"google_storage": datastoreOf("GoogleStorage",
			f("bucket", text, required),
			f("endpoint", text),
			f("credentials", credentials(accessKey, serviceAccount), def(none()))),
		"http": datastoreOf("Http",
			f("url", text, required),
			f("credentials", credentials(usernamePassword, bearerToken), def(none()))),
		"folder": datastoreOf("Folder", f("path", text, required)),
	}
})}

func datastoreOf(name string, own ...part) typ {
	return flat(func() []part {
		return []part{
			is("datastoreType", name),
			readonly("id"),
			f("type", text, required, unsent),
			f("name", text, to("@name"), required),
			f("description", text),
			f("tags", textMap, def(tree{})),
			parts(own),
		}
	})
}

var storageAccount = lazyParts(func() parts {
	return parts{
		f("account_name", text, required),
		f("endpoint", text, def("core.windows.net")),
		f("protocol", text, def("https")),
	}
})

func none() tree { return tree{"credentialsType": "None"} }

// credentials takes one of some kinds, told apart by their keys; an empty mapping is none.
func credentials(kinds ...typ) typ {
	return oneOf(append(kinds, obj(is("credentialsType", "None")))...)
}

var accountKey = later(accountKeyParts)

func accountKeyParts() []part {
	return []part{
		is("credentialsType", "AccountKey"),
		is("secrets.secretsType", "AccountKey"),
		f("account_key", text, to("secrets.key"), required),
	}
}

var sasToken = later(sasTokenParts)

func sasTokenParts() []part {
	return []part{
		is("credentialsType", "Sas"),
		is("secrets.secretsType", "Sas"),
		f("sas_token", text, to("secrets.sasToken"), required),
	}
}

var accessKey = later(accessKeyParts)

func accessKeyParts() []part {
	return []part{
		is("credentialsType", "AccessKey"),
		is("secrets.secretsType", "AccessKey"),
		f("access_key_id", text, required),
		f("secret_access_key", text, to("secrets.secretAccessKey"), required),
		f("session_token", text, to("secrets.sessionToken")),
	}
}

var usernamePassword = later(usernamePasswordParts)

func usernamePasswordParts() []part {
	return []part{
		is("credentialsType", "UsernamePassword"),
		is("secrets.secretsType", "UsernamePassword"),
		f("username", text, required),
		f("password", text, to("secrets.password"), required),
	}
}

var bearerToken = later(bearerTokenParts)

func bearerTokenParts() []part {
	return []part{
		is("credentialsType", "Token"),
		is("secrets.secretsType", "Token"),
		f("token", text, to("secrets.token"), required),
	}
}

var serviceAccount = later(serviceAccountParts)

func serviceAccountParts() []part {
	return []part{
		is("credentialsType", "ServiceAccount"),
		is("secrets.secretsType", "ServiceAccount"),
		f("service_account_key", text, to("secrets.serviceAccountKey"), required),
	}
}

var tenant = lazyParts(func() parts {
	return parts{
		f("tenant_id", text, required),
		f("client_id", text, required),
		f("resource_url", text),
		f("authority_url", text, def("https://login.microsoftonline.com")),
		first(func(s *scope, v *value) *value {
			old := v.get("authority_uri")
			if old == nil {
				return v
			}
			if v.get("authority_url") != nil {
				s.in("authority_uri").fail(old, "is the old name of authority_url; set only one of them")
				return nil
			}
			return v.without("authority_uri").with("authority_url", old)
		}),
	}
})

var servicePrincipal = later(servicePrincipalParts)

func servicePrincipalParts() []part {
	return []part{
		is("credentialsType", "ServicePrincipal"),
		is("secrets.secretsType", "ServicePrincipal"),
		f("client_secret", text, to("secrets.clientSecret"), required),
		tenant,
	}
}

var certificate = later(certificateParts)

func certificateParts() []part {
	return []part{
		is("credentialsType", "Certificate"),
		is("secrets.secretsType", "Certificate"),
		f("certificate", text, to("secrets.certificate")),
		f("thumbprint", text, required),
		tenant,
	}
}
