"""Vocabulary: the words of which keys are made: those that announce a secret, those that take it back, and their owners."""


def words(text: str) -> frozenset[str]:
    """The words of a text, each once."""
    return frozenset(text.split())


PASSWORDS = words(
    """
    password passwords passwd passwds pass pwd pw pword psw passphrase passcode passwort kennwort contrasena
    clave senha mdp motdepasse wachtwoord losenord haslo parola userpassword dbpassword dbpass userpass
    pgpassword mysqlpassword rootpassword adminpassword smtppassword redispassword requirepass masterauth
    mypassword newpassword oldpassword storepass keypass storepassword keypassword bindpw rootpw dbpasswd dbpw
    sshpass psk keyphrase secretword loginpassword authpass passwordconfirmation kpass jellyfinpass bindpasswd
    userpasswd adminpass adminpwd userpwd dbpwd sapassword
    """
)
SECRETS = words(
    """
    secret secrets clientsecret appsecret apisecret secretkey secretkeybase sharedsecret secrettoken
    consumersecret jwtsecret cookiesecret sessionsecret tokensecret webhooksecret signingsecret appsecretkey
    totpsecret otpsecret rediscliauth redisauth
    """
)
TOKENS = words(
    """
    identitytoken registrytoken
    authtoken accesstoken refreshtoken idtoken bearertoken apitoken sessiontoken bottoken usertoken oauthtoken
    privatetoken deploytoken csrftoken xsrftoken jwttoken securitytoken logintoken ghtoken githubtoken
    gitlabtoken hftoken npmtoken personalaccesstoken sastoken jwt bearer oauthtokensecret devicetoken
    registrationtoken vaulttoken slacktoken authticket
    """
)
KEYS = words(
    """
    apikey accesskey secretkey privatekey encryptionkey signingkey authkey masterkey sharedkey accountkey
    clientkey sharedaccesskey consumerkey appkey licensekey subscriptionkey hmackey aeskey sshkey deploykey
    servicekey storagekey primarykeyvalue accesskeysecret secretaccesskey accesskeyid apikeys apisecretkey
    integrationkey routingkey ingestkey ikey skey dkey sasl rsakey sessionkey userkey projectkey writekey
    functionkey hostkeyvalue clientkeydata instrumentationkey xapikey xauthkey
    """
)
KEY_OWNERS = words(
    """
    api access secret private encryption encrypt enc decryption signing sign auth master shared account client
    consumer app application license licence subscription hmac aes des rsa ec ed25519 ssh deploy service storage
    admin session user webhook integration ingest ingestion write function functions rapid rapidapi openai
    anthropic stripe google gcp gemini maps github gitlab slack sendgrid twilio mailgun mailchimp datadog dd
    newrelic sentry cohere mistral groq azure aws alibaba aliyun tencent baidu qwen dashscope deepseek moonshot
    zhipu minimax huggingface hf wandb replicate pinecone weaviate qdrant tavily serper serpapi serpstack exa
    brave elevenlabs deepgram assemblyai together perplexity openrouter fireworks xai nvidia algolia mapbox here
    weather openweather alpha alphavantage polygon finnhub coinbase binance kraken razorpay paypal square plaid
    braintree adyen shopify firebase supabase cloudflare cloudinary fastly heroku netlify vercel digitalocean
    linode vultr hetzner okta auth0 jira confluence notion linear figma asana trello airtable zendesk hubspot
    salesforce intercom segment mixpanel amplitude posthog launchdarkly snyk sonar codecov circleci travis
    jenkins pagerduty opsgenie splunk elastic elasticsearch grafana honeycomb bugsnag rollbar loggly sumo
    telegram discord line wechat weixin feishu dingtalk twitch spotify dropbox box bitly tmdb omdb nasa news
    newsapi giphy unsplash pexels pixabay cmc etherscan infura alchemy wallet validator node cluster bot jwt
    cookie crypt crypto data root kms vault token bearer tls ssl server wireguard wg pre partner merchant vendor
    provider platform project workspace tenant org team backend frontend unseal recovery bitlocker live test prod sandbox
    """
)
TOKEN_OWNERS = words(
    """
    access auth authentication refresh api bearer bot id oauth oauth2 session secret security github gh gitlab
    slack npm pypi hf huggingface personal deploy jwt vault private deployment job registry ci circleci travis
    codecov sonar sonarqube sentry telegram discord heroku netlify vercel digitalocean do cloudflare cf linode
    fly railway render supabase docker dockerhub hub ghcr quay artifactory jfrog nexus npmjs node yarn rubygems
    nuget cargo crates twine kaggle wandb comet neptune replicate mapbox figma notion linear jira atlassian
    bitbucket asana shopify square plaid stripe paypal hubspot intercom zendesk pagerduty datadog grafana influx
    influxdb influxdb2 k8s kube kubernetes cluster admin root user service account app client consumer csrf xsrf
    login device push verification reset confirm invite activation magic otp sas aws gcp google azure databricks
    snowflake dbt airbyte prefect dagster argo argocd rancher consul nomad terraform tfe tf pulumi spacelift
    doppler infisical tailscale ngrok github-enterprise webhook verify signing line wechat feishu dingtalk
    mastodon twitter facebook fb instagram linkedin spotify dropbox box onedrive zoom twilio signal matrix
    rocketchat mattermost gitea gogs forgejo codeberg sourcehut hcloud hetzner scaleway vultr ovh upcloud
    exoscale repl replit glitch codespaces upload publish my the our release read write x hass homeassistant
    plex auto anon service-account
    """
)
COUNTED = words(
    """
    eos bos pad unk mask sep cls stop special next prev previous page pagination continuation sync start end max
    min num number per total first last input output prompt completion cursor image text word line lex syntax
    expected unexpected invalid new-line newline bad missing current lookahead each every this any one single
    eot eom fim begin end-of n idempotency cancellation cancel correlation request clientrequest
    """
)
"""Words before `token` that speak of a language's tokens or of a place in a list."""
HARMLESS = words(
    """
    name names file files filename path paths dir directory folder url uri urls endpoint host port type types
    length len size count counts field fields label labels hint prompt prompts policy policies expiry expires
    expired expiration exp ttl regex pattern required enabled disabled valid validity validation validator
    validators reset manager provider ref refs reference references arn version versions format placeholder
    attempts age limit limits index idx position usage used encoding algorithm algo alg prefix suffix param
    params parameter parameters error errors message messages msg missing changed change min max strength column
    input form class func function store service services issuer scope scopes lifetime timeout kind status state
    location mode backend handler handlers generator factory builder reader parser required-for rotation created
    updated updatedat createdat at date time timestamp id ids uuid guid owner user users username email exists
    present set get visible hidden show toggle button title text description desc tooltip help link page screen
    view component dialog modal manager middleware module package plugin util utils helper helpers test tests
    testing spec mock example examples sample source target mapping map list array dict table tables row rows
    schema model models entity dto request response context ctx config configuration conf settings option
    options opts flag flags level levels rule rules check checks checker score bytes bits chars characters words
    stdin stdout env var vars variable variables cost price budget rate per second seconds ms minute minutes ids
    embedding embeddings logprob logprobs probability prob probs vocab vocabulary tokenizer tokenization
    count_tokens public pub pubkey fingerprint thumbprint kid subject audience aud sub verifier challenge method
    methods grant grants realm header headers cookiejar jar sort sortkey partition primary foreign unique
    candidate composite hash hashes hashed hasher digest checksum algorithmid kdf iterations rounds namespace
    tag tags template templates store-type storetype engine engines driver drivers mount mounts volume volumes
    """
)
"""Words at the end of a key that make it a remark about the secret, not the secret."""
NEUTRAL = words(
    """
    value val values raw b64 base64 base str string plain plaintext cleartext current old new prod production
    dev development staging stage default confirm confirmation confirmed repeat again live primary secondary
    backup main local remote env encoded data decrypted temp temporary initial original first second a b c one
    two
    """
)
"""Words at the end of a key that say nothing: `PASSWORD_PROD`, `secret_value`."""
PHONES = words(
    """
    phone phones telephone tel mobile mobilephone cell cellphone fax whatsapp phonenumber mobilenumber msisdn
    telefon handy telefono movil celular telephone_number phoneno telno contactnumber sms landline
    """
)
IDENTITIES = words(
    """
    ssn socialsecurity socialsecuritynumber nationalid nationalidnumber idnumber idcard idcardno identitycard
    passport passportno passportnumber taxid itin nino nationalinsurance nationalinsurancenumber nhsnumber
    aadhaar aadhar pancard cpf cnpj pesel bsn dni nie nif nir curp codicefiscale steuerid steuernummer
    personnummer mynumber nric idcardnumber driverlicense driverslicense drivinglicence drivinglicense
    licensenumber tckn identitynumber
    """
)
CARDS = words(
    """
    cardnumber creditcard creditcardnumber ccnumber ccnum cardno debitcard bankcard
    """
)
